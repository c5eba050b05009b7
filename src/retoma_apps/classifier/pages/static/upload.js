// Uploads files, a few at a time, and then starts an execution with them. Failed uploads are retried, and files that are
// not accepted are listed before anything is classified.

const AT_ONCE = 4;
const TRIES = 4;
const FIRST_PAUSE = 500;
const root = document.getElementById("upload");
const part = (name) => root.querySelector(`[data-${name}]`);
const most = Number(root.dataset.most);
const language = root.dataset.language;
const refusals = JSON.parse(root.dataset.refusals);
const LEFTOVERS = [".ds_store", "thumbs.db", "desktop.ini"];

let chosen = []; // {file, name, sent, documents, why}
let isSending = false;
let isStopped = false;
let key = newKey();
const requests = new Set();

function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((each) => each.toString(16).padStart(2, "0")).join("");
}

function formatMessage(name, values = {}) {
  return root.dataset[name].replace(/\{(\w+)\}/g, (all, each) => values[each] ?? all);
}

const number = (given) => given.toLocaleString(language);

function size(bytes) {
  const units = ["B", "kB", "MB", "GB"];
  let place = 0;
  while (bytes >= 1000 && place < units.length - 1) { bytes /= 1000; place += 1; }
  return `${bytes.toLocaleString(language, { maximumFractionDigits: 1 })} ${units[place]}`;
}

function add(files) {
  if (isSending) return;
  const known = new Set(chosen.map((each) => `${each.name} ${each.file.size} ${each.file.lastModified}`));
  for (const { file, name } of files.filter((each) => !isLeftover(each.name))) {
    if (!known.has(`${name} ${file.size} ${file.lastModified}`)) chosen.push({ file, name, sent: 0, documents: null, why: "" });
  }
  key = newKey();
  part("refused").hidden = true;
  show();
}

// Files that operating systems leave in folders.
function isLeftover(path) {
  const name = path.split("/").at(-1).toLowerCase();
  return LEFTOVERS.includes(name) || name.startsWith("._");
}

const isZip = (each) => each.name.toLowerCase().endsWith(".zip");

function show() {
  const total = chosen.reduce((sum, each) => sum + each.file.size, 0);
  const sent = chosen.reduce((sum, each) => sum + each.sent, 0);
  const done = chosen.filter((each) => each.documents).length;
  const tooMany = chosen.filter((each) => !isZip(each)).length > most;
  part("send").disabled = isSending || !chosen.length || tooMany;
  part("clear").hidden = isSending || !chosen.length;
  part("stop").hidden = !isSending;
  part("progress").hidden = !isSending;
  part("chosen").classList.toggle("errline", tooMany);
  if (tooMany) showMessage(formatMessage("tooMany", { files: number(chosen.length), most: number(most) }));
  else if (isSending) showMessage(formatMessage("sending", { done: number(done), files: number(chosen.length), size: size(sent), total: size(total) }));
  else if (chosen.length) showMessage(formatMessage("chosen", { files: number(chosen.length), size: size(total) }));
  else showMessage("");
  part("progress").querySelector("rect").setAttribute("width", `${total ? (100 * sent / total).toFixed(2) : 0}%`);
}

function showMessage(text) {
  if (part("chosen").textContent !== text) part("chosen").textContent = text;
}

async function send() {
  isSending = true;
  isStopped = false;
  part("refused").hidden = true;
  window.addEventListener("beforeunload", warn);
  show();
  const waiting = chosen.filter((each) => !each.documents);
  await Promise.all(Array.from({ length: AT_ONCE }, () => sendFrom(waiting)));
  if (isStopped) return finish(formatMessage("stopped"));
  const refused = listRefused();
  if (refused.length) return finish(null, refused);
  await start();
}

async function sendFrom(waiting) {
  while (waiting.length && !isStopped) await sendOne(waiting.shift());
}

async function sendOne(each) {
  for (let attempt = 1; attempt <= TRIES && !isStopped; attempt += 1) {
    const answer = await post(each);
    if (answer.status === 200) {
      each.documents = answer.body.documentos;
      each.sent = each.file.size;
      each.why = "";
      return show();
    }
    each.sent = 0;
    each.why = refusals[answer.body?.code] ?? answer.body?.detail ?? formatMessage("unreachable");
    if (answer.status >= 400 && answer.status < 500 && answer.status !== 429) return;
    if (attempt < TRIES) await new Promise((go) => setTimeout(go, FIRST_PAUSE * 2 ** attempt));
  }
}

// XMLHttpRequest, because only it reports the progress of an upload.
function post(each) {
  return new Promise((resolve) => {
    const request = new XMLHttpRequest();
    request.open("POST", `/arquivos?nome=${encodeURIComponent(each.name.slice(-500))}`);
    request.setRequestHeader("x-retoma-csrf", root.dataset.csrf);
    request.setRequestHeader("content-type", "application/octet-stream");
    request.responseType = "json";
    request.upload.addEventListener("progress", (event) => { each.sent = Math.min(event.loaded, each.file.size); show(); });
    request.addEventListener("loadend", () => {
      requests.delete(request);
      resolve({ status: request.status, body: request.response });
    });
    requests.add(request);
    request.send(each.file);
  });
}

function listRefused() {
  const inside = chosen.flatMap((each) => each.documents ?? []).filter((each) => each.recusa);
  const failed = chosen.filter((each) => !each.documents);
  return [
    ...failed.map((each) => ({ name: each.name, why: each.why })),
    ...inside.map((each) => ({ name: each.nome, why: refusals[each.recusa.codigo] ?? each.recusa.mensagem })),
  ];
}

function finish(text, refused = []) {
  isSending = false;
  window.removeEventListener("beforeunload", warn);
  show();
  if (text) showMessage(text);
  if (!refused.length) return;
  const list = part("refused").querySelector("ul");
  list.replaceChildren(...refused.map(createLine));
  const count = chosen.flatMap((each) => each.documents ?? []).length;
  part("on").textContent = formatMessage("goOn", { files: number(count) });
  part("on").hidden = !count;
  part("again").hidden = chosen.every((each) => each.documents);
  part("refused").hidden = false;
}

function createLine({ name, why }) {
  const made = document.createElement("li");
  const strong = document.createElement("b");
  strong.textContent = name;
  made.append(strong, ` ${why}`);
  return made;
}

async function start() {
  const documentos = chosen.flatMap((each) => each.documents ?? []);
  if (documentos.length > most) {
    return finish(formatMessage("tooManyUnpacked", { files: number(documentos.length), most: number(most) }));
  }
  isSending = true;
  showMessage(formatMessage("starting"));
  const answer = await postExecution({ projeto: root.dataset.project, nome: part("name").value.trim(), documentos });
  if (answer?.ok) {
    window.removeEventListener("beforeunload", warn);
    return location.assign(`/classificador/execucoes/${(await answer.json()).id}`);
  }
  const why = answer ? (await answer.json().catch(() => ({}))).detail ?? answer.status : formatMessage("unreachable");
  finish(formatMessage("notStarted", { why }));
}

// One key per batch: however often it is sent, it starts one execution.
async function postExecution(body) {
  for (let attempt = 1; attempt <= TRIES; attempt += 1) {
    const answer = await fetch("/execucoes", {
      method: "POST",
      headers: { "content-type": "application/json", "idempotency-key": key, "x-retoma-csrf": root.dataset.csrf },
      body: JSON.stringify(body),
    }).catch(() => null);
    if (answer && answer.status < 500 && answer.status !== 429) return answer;
    if (attempt < TRIES) await new Promise((go) => setTimeout(go, FIRST_PAUSE * 2 ** attempt));
  }
  return null;
}

function stop() {
  isStopped = true;
  for (const request of requests) request.abort();
}

function clear() {
  chosen = [];
  part("refused").hidden = true;
  show();
}

function warn(event) {
  event.preventDefault();
}

function take(input) {
  add([...input.files].map((file) => ({ file, name: file.webkitRelativePath || file.name })));
  input.value = "";
}

async function drop(event) {
  event.preventDefault();
  part("drop").classList.remove("over");
  if (part("files").disabled) return;
  const entries = [...event.dataTransfer.items].map((each) => each.webkitGetAsEntry?.()).filter(Boolean);
  const files = [...event.dataTransfer.files].map((file) => ({ file, name: file.name }));
  add(entries.length ? (await Promise.all(entries.map(listFiles))).flat() : files);
}

async function listFiles(entry) {
  if (entry.isFile) {
    const file = await new Promise((found, failed) => entry.file(found, failed)).catch(() => null);
    return file ? [{ file, name: entry.fullPath.replace(/^\//, "") }] : [];
  }
  const reader = entry.createReader();
  const found = [];
  for (let some = [null]; some.length; found.push(...some)) {
    some = await new Promise((read, failed) => reader.readEntries(read, failed)).catch(() => []);
  }
  return (await Promise.all(found.map(listFiles))).flat();
}

function onDragOver(event) {
  event.preventDefault();
  part("drop").classList.toggle("over", !part("files").disabled);
}

part("files").addEventListener("change", (event) => take(event.target));
part("folder").addEventListener("change", (event) => take(event.target));
for (const name of ["files", "folder"]) if (part(name).files.length) take(part(name)); // selected before this script was loaded
part("drop").addEventListener("dragover", onDragOver);
part("drop").addEventListener("dragleave", () => part("drop").classList.remove("over"));
part("drop").addEventListener("drop", drop);
part("send").addEventListener("click", send);
part("again").addEventListener("click", send);
part("on").addEventListener("click", start);
part("stop").addEventListener("click", stop);
part("clear").addEventListener("click", clear);
show();
