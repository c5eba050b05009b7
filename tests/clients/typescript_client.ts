// Runs with the types that openapi-typescript generated: submit, show, list and cancel.
import createClient from "openapi-fetch";
import type { components, paths, webhooks } from "./generated.js";

type Completed = webhooks["run.completed"]["post"]["requestBody"]["content"]["application/json"];

const [address, key] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl: address, headers: { "X-API-Key": key } });

// Fields that have defaults are left out.
const image = { id: "1", image_url: "https://example.com/1.png", duracao: 5 };
const submitted = await client.POST("/video/img2vid/async", { body: { images: [image], id_roteiro: 34 } });
const job = submitted.data!.jobId;
const path = { job };
const shown = await client.GET("/jobs/{job}", { params: { path } });
const listed = await client.GET("/jobs", { params: { query: { id_roteiro: 34 } } });
const cancelled = await client.POST("/jobs/{job}/cancel", { params: { path } });
const missing = await client.GET("/jobs/{job}", { params: { path: { job: "orc-nothing" } } });
const problem: components["schemas"]["Problem"] = missing.error!;
const started = await client.POST("/api/v1/runs", { body: { pipeline: "img2vid" } });
const status = (told: Completed): string => told.status;

console.log(JSON.stringify({
  accepted: submitted.data!.status,
  shown: shown.data!.data.id_roteiro,
  listed: listed.data!.jobs.map((one) => one.jobId).join() === job,
  cancelled: cancelled.data!.message,
  missing: [problem.status, problem.code],
  refused: [started.error!.status, started.error!.code],
  webhook: status({ status: "COMPLETED" } as Completed),
}));
