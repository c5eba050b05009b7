// A real OpenID provider for the tests. Its accounts are in the file that ACCOUNTS names, read again for every login.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const { MODULES, ACCOUNTS, PORT, REDIRECT_URI, CLIENT_SECRET } = process.env;
const entry = createRequire(join(MODULES, "package.json")).resolve("oidc-provider");
const { Provider } = await import(pathToFileURL(entry));

const accounts = () => JSON.parse(readFileSync(ACCOUNTS, "utf8"));
const provider = new Provider(`http://127.0.0.1:${PORT}`, {
  clients: [
    {
      client_id: "retoma: tests",
      client_secret: CLIENT_SECRET,
      redirect_uris: [REDIRECT_URI],
      grant_types: ["authorization_code"],
      response_types: ["code"],
    },
  ],
  pkce: { required: () => true },
  claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name", "groups"] },
  features: { devInteractions: { enabled: true } },
  cookies: { keys: ["only for tests"] },
  findAccount: (_, id) => {
    const claims = accounts()[id];
    return claims && { accountId: id, claims: () => ({ sub: id, ...claims }) };
  },
});
provider.listen(Number(PORT), "127.0.0.1", () => console.log("listening"));
