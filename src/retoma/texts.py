"""What `retoma dev`, `serve` and `keys` say, in English and in Brazilian Portuguese, by LC_ALL, LC_MESSAGES or LANG."""

from __future__ import annotations

import os
from typing import Any

_TEXTS = {
    # dev
    "title": ("Retoma {version}, application {app}", "Retoma {version}, aplicação {app}"),
    "preparing": ("preparing the database ...", "preparando o banco de dados ..."),
    "database": ("database  {kind} at {address}", "banco     {kind} em {address}"),
    "embedded": ("embedded PostgreSQL", "PostgreSQL embutido"),
    "own": ("your PostgreSQL", "seu PostgreSQL"),
    "worker": ("worker    process {pid}, queues {queues}", "worker    processo {pid}, filas {queues}"),
    "server": (
        "server    {address} (open it in a browser: it logs you in on this machine)",
        "servidor  {address} (abra no navegador: nesta máquina, você já entra)",
    ),
    "api key": (
        "API key   of this start is in {file}, for programs on this machine",
        "chave     de API deste início em {file}, para programas nesta máquina",
    ),
    "page": ("page      {address}", "página    {address}"),
    "webhooks": (
        "webhooks  may go to this machine too (only `retoma dev` allows it)",
        "webhooks  podem ir também para esta máquina (só o `retoma dev` permite)",
    ),
    "next": ("In another terminal, in this folder:", "Em outro terminal, nesta pasta:"),
    "how to stop": (
        "Ctrl-C stops it: jobs at work may end. Once more stops at once.",
        "Ctrl-C encerra: os jobs em andamento podem terminar. Mais uma vez encerra já.",
    ),
    "stopping": (
        "stopping: the jobs at work may end (Ctrl-C once more stops at once)",
        "encerrando: os jobs em andamento podem terminar (Ctrl-C de novo encerra já)",
    ),
    "stopped": ("stopped; everything is kept", "encerrado; está tudo guardado"),
    "worker ended": (
        "the worker (process {pid}) ended with {code}; starting another",
        "o worker (processo {pid}) terminou com {code}; iniciando outro",
    ),
    "review": ("{step}{of} waits for you: {address}", "{step}{of} espera por você: {address}"),
    "reloading": ("the code changed: starting again", "o código mudou: reiniciando"),
    "reload failed": (
        "the code changed and cannot be imported, so the old code keeps running: {error}",
        "o código mudou e não pode ser importado, por isso o código antigo continua: {error}",
    ),
    "reviews open": ("{count} reviews wait for you: {address}", "{count} revisões esperam por você: {address}"),
    "review of": (" of “{about}”", " de “{about}”"),
    "port taken": (
        "port {port} is taken, so the server is on {other}",
        "a porta {port} está ocupada, então o servidor fica na {other}",
    ),
    # serve
    "no key yet": (
        "No API key exists yet, so that nobody can call this server. Make one in another terminal:",
        "Ainda não há chave de API, então ninguém pode chamar este servidor. Crie uma em outro terminal:",
    ),
    # password
    "password": ("Password", "Senha"),
    # keys
    "shown once": (
        "key {key}; this is the only time that it is shown",
        "chave {key}; esta é a única vez que ela aparece",
    ),
    # demo
    "demo": (
        "A small film: a script, 12 scenes, a narration and an illustration for each, and the cut.\n"
        "In the middle of it this program kills its own worker with SIGKILL. Watch what happens.",
        "Um pequeno filme: roteiro, 12 cenas, narração e ilustração de cada uma, e a montagem.\n"
        "No meio do trabalho este programa mata o próprio worker com SIGKILL. Veja o que acontece.",
    ),
    "started": ("run {run} is started and kept", "a execução {run} começou e está guardada"),
    "first worker": ("worker 1 (process {pid}) is at work", "o worker 1 (processo {pid}) está trabalhando"),
    "killed": (
        "kill -9 {pid}: worker 1 is dead, with {jobs} jobs in its hands",
        "kill -9 {pid}: o worker 1 morreu, com {jobs} jobs nas mãos",
    ),
    "kept": (
        "{jobs} jobs were finished and are kept in the database",
        "{jobs} jobs estavam prontos e seguem guardados no banco",
    ),
    "next worker": (
        "worker 2 (process {pid}) is up {after} s later and goes on with what is ready",
        "o worker 2 (processo {pid}) subiu {after} s depois e segue com o que está pronto para rodar",
    ),
    "silence": (
        "worker 1 has been silent for {seconds} s; after {limit} s its jobs are taken from it",
        "o worker 1 está em silêncio há {seconds} s; depois de {limit} s os jobs dele são tomados de volta",
    ),
    "picked up": (
        "picked up again {after} s after the kill: the jobs of worker 1 run anew, one at a time",
        "retomados {after} s após a morte: os jobs do worker 1 rodam de novo, um de cada vez",
    ),
    "over": ("the film is ready, {after} s after its start", "o filme está pronto, {after} s após o início"),
    "proof": ("What the kill cost", "O que a morte custou"),
    "jobs": ("jobs", "jobs"),
    "bodies": ("times run", "vezes que rodou"),
    "finished": ("finished before the kill", "prontos antes da morte"),
    "interrupted": ("in the dead worker's hands", "nas mãos do worker morto"),
    "rest": ("not begun at the kill", "ainda não começados"),
    "not again": ("none was run again", "nenhum rodou de novo"),
    "again": ("each was run again", "cada um rodou de novo"),
    "once": ("each was run once", "cada um rodou uma vez"),
    "counted": (
        "Counted in {file}, where each step writes a line, outside the database.",
        "Contado em {file}, onde cada passo escreve uma linha, fora do banco.",
    ),
    "result": ("{title}: {scenes} scenes, {seconds} s", "{title}: {scenes} cenas, {seconds} s"),
    "not proven": ("This is not what should happen:", "Não é o que devia acontecer:"),
    "not killed": (
        "the worker was not killed in the middle of the run",
        "o worker não foi morto no meio da execução",
    ),
    "only once": (
        "{job} was interrupted and yet was run once",
        "{job} foi interrompido e mesmo assim rodou uma vez só",
    ),
    "too often": ("{job} was run {times} times", "{job} rodou {times} vezes"),
    "no trace": (
        "{job} was finished and yet left no trace",
        "{job} estava pronto e mesmo assim não deixou rastro",
    ),
    "report": ("Please report it, with {file}.", "Por favor, relate, com {file}."),
    "too slow": ("the run is not over after {seconds} s", "a execução não terminou em {seconds} s"),
    "legend": (
        "{ready} ready   {running} running   {done} done   {lost} lost with its worker   {again} done, second try",
        "{ready} na fila   {running} rodando   {done} pronto   {lost} perdido com o worker   {again} pronto na 2ª vez",
    ),
}


def language() -> str:
    """`pt` or `en`."""
    locale = next((os.environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if os.environ.get(name)), "")
    return "pt" if locale.lower().startswith("pt") else "en"


def text(name: str, **values: Any) -> str:
    english, portuguese = _TEXTS[name]
    return (portuguese if language() == "pt" else english).format(**values)


def decimal(number: float) -> str:
    """With one digit after the point, or the comma."""
    return f"{number:.1f}".replace(".", "," if language() == "pt" else ".")
