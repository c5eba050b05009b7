"""What the classifier's page says, in English and in Brazilian Portuguese."""

from __future__ import annotations

from typing import Any

LANGUAGES = ("en", "pt")

_WORDS = {
    "classifier": ("Classifier", "Classificador"),
    # statuses of executions
    "status PENDENTE": ("PENDING", "PENDENTE"),
    "status EM_ANDAMENTO": ("UNDER WAY", "EM ANDAMENTO"),
    "status TRAVADO": ("STUCK", "TRAVADO"),
    "status CONCLUIDO": ("DONE", "CONCLUÍDO"),
    "status CONCLUIDO_COM_ERROS": ("DONE WITH ERRORS", "CONCLUÍDO COM ERROS"),
    "status ERRO": ("ERROR", "ERRO"),
    "status CANCELADO": ("CANCELLED", "CANCELADO"),
    # statuses of documents
    "document PENDENTE": ("Pending", "Pendente"),
    "document PROCESSANDO": ("Processing", "Processando"),
    "document CONCLUIDO": ("Done", "Concluído"),
    "document ERRO": ("Error", "Erro"),
    "document PULADO": ("Skipped", "Pulado"),
    "document REVER": ("Done, to check", "Concluído, conferir"),
    "many PENDENTE": ("Pending", "Pendentes"),
    "many PROCESSANDO": ("Processing", "Em processamento"),
    "many CONCLUIDO": ("Done", "Concluídos"),
    "many ERRO": ("Errors", "Com erro"),
    "many PULADO": ("Skipped", "Pulados"),
    "many REVER": ("To check", "Conferir"),
    "all": ("All", "Todos"),
    # projects
    "projects": ("Projects", "Projetos"),
    "new project": ("New project", "Novo projeto"),
    "create": ("Create the project", "Criar projeto"),
    "save": ("Save the changes", "Salvar alterações"),
    "leave": ("Cancel", "Cancelar"),
    "edit project": ("Edit the project", "Editar projeto"),
    "delete project": ("Delete the project…", "Excluir o projeto…"),
    "delete why": (
        "Its executions and their results stay. This cannot be undone.",
        "As execuções e os resultados continuam. Não há como desfazer.",
    ),
    "delete now": ("Yes, delete it", "Sim, excluir"),
    "no projects": ("Begin with a project", "Comece por um projeto"),
    "no projects why": (
        "A project says which labels there are and what they mean. Then you send documents, and each gets one.",
        "O projeto diz quais rótulos existem e o que significam. Depois você envia documentos, e cada um ganha um.",
    ),
    "labels": ("{count} labels", "{count} rótulos"),
    "one label": ("1 label", "1 rótulo"),
    "examples": ("{count} examples", "{count} exemplos"),
    "one example": ("1 example", "1 exemplo"),
    "no examples": ("no examples", "sem exemplos"),
    "and more": ("and {count} more", "e mais {count}"),
    "no execution yet": ("No execution yet", "Nenhuma execução ainda"),
    "offline": (
        "Works offline: no OpenRouter key is set. Labels come from a small model trained by the project's examples.",
        "Trabalhando offline: nenhuma chave do OpenRouter foi definida. Os rótulos vêm de um modelo pequeno, treinado "
        "com os exemplos do projeto.",
    ),
    "accuracy": (
        "Right in {share} % of {examples} examples that it had not seen.",
        "Acertou {share} % de {examples} exemplos que não tinha visto.",
    ),
    "untested": (
        "Not measured, for want of examples: {labels}.",
        "Sem medida, por falta de exemplos: {labels}.",
    ),
    "measuring": ("Its accuracy is being measured…", "O acerto está sendo medido…"),
    "too few": ("Too few examples to measure.", "Poucos exemplos para medir."),
    "too few why": (
        "Give at least {count}, and two or more of each label.",
        "Dê ao menos {count}, e dois ou mais de cada rótulo.",
    ),
    "without examples": (
        "This project has no examples, so nothing can be labelled offline.",
        "Este projeto não tem exemplos, e sem eles nada pode ser classificado offline.",
    ),
    "without examples why": (
        "Give some examples, or set OPENROUTER_API_KEY on the server.",
        "Dê alguns exemplos, ou defina OPENROUTER_API_KEY no servidor.",
    ),
    "give examples": ("Give examples", "Dar exemplos"),
    # the form of a project
    "field nome": ("Name", "Nome"),
    "field taxonomia": ("Labels", "Rótulos"),
    "hint taxonomia": (
        "One a line: label: what it means. The meaning helps the model.",
        "Um por linha: rótulo: o que significa. O significado ajuda o modelo.",
    ),
    "sample taxonomia": (
        "invoice: asks for payment of goods or services\ncontract: two parties agree on duties",
        "sentença: decide o pedido\npetição inicial: abre o processo",
    ),
    "field prompt": ("What the model should know", "O que o modelo deve saber"),
    "hint prompt": (
        "In your words: what the documents are, and how to decide between labels that are near.",
        "Com suas palavras: o que são os documentos, e como decidir entre rótulos próximos.",
    ),
    "field exemplos": ("Examples", "Exemplos"),
    "hint exemplos": (
        "One a line: label: text. Where a text has a line break, write ↵.",
        "Um por linha: rótulo: texto. Onde o texto muda de linha, escreva ↵.",
    ),
    "examples too large": (
        "There are too many to be edited here; they stay as they are. PUT /projetos/{project} takes others.",
        "São muitos para editar aqui, e ficam como estão. PUT /projetos/{project} aceita outros.",
    ),
    "field modelo": ("Model", "Modelo"),
    "hint modelo": ("As OpenRouter names it.", "Como o OpenRouter o chama."),
    "field confianca_minima": ("Least confidence, in %", "Confiança mínima, em %"),
    "hint confianca_minima": (
        "Labels below it are marked for a person to check.",
        "Rótulos abaixo dela são marcados para uma pessoa conferir.",
    ),
    "field max_retries_execucao": ("Resumes by itself", "Retomadas automáticas"),
    "hint max_retries_execucao": (
        "How often a stuck execution resumes without progress, 0 to 10.",
        "Quantas vezes uma execução travada é retomada sem progresso, de 0 a 10.",
    ),
    "field max_retries_documento": ("Retries of a document", "Novas tentativas por documento"),
    "hint max_retries_documento": (
        "How often a document that failed is tried again, 0 to 10.",
        "Quantas vezes um documento que falhou é tentado de novo, de 0 a 10.",
    ),
    "wrong": ("Nothing was saved yet: see the marked fields.", "Nada foi salvo ainda: veja os campos marcados."),
    "wrong nome": ("Give it a name of 1 to 100 letters.", "Dê um nome de 1 a 100 letras."),
    "wrong taxonomia": (
        "Give 1 to 200 labels, each of at most 100 letters.",
        "Dê de 1 a 200 rótulos, cada um com no máximo 100 letras.",
    ),
    "wrong twice": ("The label “{label}” is there twice.", "O rótulo “{label}” está repetido."),
    "wrong prompt": ("At most 8,000 letters.", "No máximo 8.000 letras."),
    "wrong exemplos": (
        "At most 1,000 examples, each of 1 to 20,000 letters.",
        "No máximo 1.000 exemplos, cada um de 1 a 20.000 letras.",
    ),
    "wrong line": (
        "Line {line} does not say its label: write label: text.",
        "A linha {line} não diz o rótulo: escreva rótulo: texto.",
    ),
    "wrong label": (
        "Line {line} has the label “{label}”, which is not among the labels above.",
        "A linha {line} tem o rótulo “{label}”, que não está entre os rótulos acima.",
    ),
    "wrong modelo": ("Name a model.", "Diga o modelo."),
    "wrong confianca_minima": ("A number from 0 to 100.", "Um número de 0 a 100."),
    "wrong max_retries_execucao": ("A whole number from 0 to 10.", "Um número inteiro de 0 a 10."),
    "wrong max_retries_documento": ("A whole number from 0 to 10.", "Um número inteiro de 0 a 10."),
    "colleague": (
        "Somebody else changed this project while you were editing.",
        "Outra pessoa alterou este projeto enquanto você editava.",
    ),
    "colleague why": (
        "Nothing of yours is lost: it is all below, not saved yet. What is in force now is shown at each field that "
        "differs. If you save, yours takes its place.",
        "Nada do que você escreveu se perdeu: está tudo abaixo, sem salvar. O que vale agora aparece em cada campo "
        "diferente. Se você salvar, o seu fica no lugar.",
    ),
    "in force": ("In force now", "Vale agora"),
    # upload
    "upload": ("Send documents", "Enviar documentos"),
    "upload why": (
        "PDF, docx, images and plain text; a zip counts as the files in it. Up to {most} documents.",
        "PDF, docx, imagens e texto puro; um zip vale pelos arquivos que contém. Até {most} documentos.",
    ),
    "upload too large": (
        "Too large. A document may have 50 MB, and a zip 2,000 files of 2 GB in all. Split it or make it smaller.",
        "Grande demais. Um documento pode ter 50 MB, e um zip, 2.000 arquivos de 2 GB ao todo. Divida ou reduza.",
    ),
    "drop here": ("Drop files, folders or a zip here", "Solte aqui arquivos, pastas ou um zip"),
    "choose files": ("Choose files", "Escolher arquivos"),
    "choose folder": ("Choose a folder", "Escolher uma pasta"),
    "execution name": ("Name of this batch", "Nome deste lote"),
    "execution name hint": ("Optional, to find it again.", "Opcional, para achá-lo depois."),
    "send": ("Send and classify", "Enviar e classificar"),
    "needs script": (
        "Sending files from here needs JavaScript. Without it, POST /arquivos and POST /execucoes do the same.",
        "O envio por aqui precisa de JavaScript. Sem ele, POST /arquivos e POST /execucoes fazem o mesmo.",
    ),
    "chosen": ("Chosen: {files}, {size}", "Escolhidos: {files}, {size}"),
    "too many": (
        "{files} files are more than the {most} of one execution. Choose fewer; nothing was sent.",
        "{files} arquivos passam dos {most} de uma execução. Escolha menos; nada foi enviado.",
    ),
    "too many unpacked": (
        "With those in zips there are {files} documents, more than the {most} of one execution. Choose fewer.",
        "Com os que estão nos zips são {files} documentos, mais que os {most} de uma execução. Escolha menos.",
    ),
    "sending": (
        "{done} of {files} files sent, {size} of {total}",
        "{done} de {files} arquivos enviados, {size} de {total}",
    ),
    "starting": ("Starting the execution…", "Iniciando a execução…"),
    "stopped": ("Stopped. Nothing was classified.", "Interrompido. Nada foi classificado."),
    "stop": ("Stop sending", "Interromper envio"),
    "clear chosen": ("Clear", "Limpar"),
    "refused": ("Not accepted", "Não aceitos"),
    "refused why": (
        "The others were sent. You can try these again, or classify what was sent.",
        "Os outros foram enviados. Você pode tentar estes de novo, ou classificar o que foi enviado.",
    ),
    "try again": ("Try these again", "Tentar estes de novo"),
    "go on": ("Classify what was sent ({files})", "Classificar o que foi enviado ({files})"),
    "unreachable": ("The server did not answer.", "O servidor não respondeu."),
    "not started": ("The execution was not started: {why}", "A execução não começou: {why}"),
    # executions
    "executions": ("Executions", "Execuções"),
    "recent executions": ("Recent executions", "Execuções recentes"),
    "no executions": ("No execution yet", "Nenhuma execução ainda"),
    "no executions why": (
        "Open a project and send its first documents.",
        "Abra um projeto e envie os primeiros documentos.",
    ),
    "no executions here": (
        "Send the first documents above: the execution begins by itself.",
        "Envie os primeiros documentos acima: a execução começa sozinha.",
    ),
    "execution": ("Execution", "Execução"),
    "project": ("Project", "Projeto"),
    "status": ("Status", "Status"),
    "progress": ("Progress", "Progresso"),
    "errors": ("Errors", "Erros"),
    "age": ("Began", "Início"),
    "batch of": ("Batch of {time}", "Lote de {time}"),
    "documents": ("{count} documents", "{count} documentos"),
    "done of": ("{done} of {total}", "{done} de {total}"),
    "route": ("Route", "Rota"),
    "began": ("Began", "Início"),
    "ended": ("Ended", "Fim"),
    "took": ("Took", "Duração"),
    "round": ("Round", "Rodada"),
    "last progress": ("Last progress", "Último progresso"),
    "last document": ("Last document", "Último documento"),
    "cause": ("Cause", "Causa"),
    "since": ("Since", "Desde"),
    "by itself": ("Resumed by itself", "Retomada automática"),
    "times of": ("{times} of {most}", "{times} de {most}"),
    "export": ("Export", "Exportar"),
    "as csv": ("CSV, for spreadsheets", "CSV, para planilhas"),
    "as json": ("JSON, for programs", "JSON, para programas"),
    "cancel": ("Cancel…", "Cancelar…"),
    "cancel why": (
        "No further document is begun. Labels that are there stay. This cannot be undone.",
        "Nenhum outro documento será iniciado. Os rótulos prontos continuam. Não há como desfazer.",
    ),
    "cancel now": ("Yes, cancel it", "Sim, cancelar"),
    "technical": ("Technical view", "Visão técnica"),
    "resume": ("Continue from where it stopped", "Continuar de onde parou"),
    "rerun": ("Reprocess only errors", "Reprocessar apenas erros"),
    "twice is fine": (
        "Pressing twice repeats nothing. Labels that are there stay.",
        "Clicar duas vezes não repete nada. Os rótulos prontos continuam.",
    ),
    "rerun needs the end": (
        "Errors are reprocessed once the others have ended: while it is stuck, that button lets it go on first.",
        "Os erros são refeitos depois que os outros terminam: enquanto está travada, esse botão a faz continuar antes.",
    ),
    # whether to wait or to act
    "stopped at": (
        "The execution stopped at {done} of {total} and nothing is lost",
        "A execução parou em {done} de {total} e nada se perdeu",
    ),
    "failed at": (
        "The execution ended with an error at {done} of {total}; nothing is lost",
        "A execução terminou com erro em {done} de {total}; nada se perdeu",
    ),
    "next resume": (
        "It tries to go on by itself in a moment (resumed {times} of {most} times). You may wait, or continue now.",
        "Ela tenta continuar sozinha em instantes (retomada {times} de {most} vezes). Espere, ou continue agora.",
    ),
    "next mend": (
        "It goes on by itself as soon as this is mended, and never fails for it.",
        "Ela continua sozinha assim que isso for resolvido, e nunca falha por isso.",
    ),
    "next you": (
        "It does not go on by itself any more: continue when the cause is mended.",
        "Ela não continua mais sozinha: continue quando a causa estiver resolvida.",
    ),
    "wait to begin": ("It begins by itself: you need to do nothing.", "Começa sozinha: não precisa fazer nada."),
    "wait for it": (
        "Classification under way: you need to do nothing.",
        "Classificação em andamento: não precisa fazer nada.",
    ),
    "wait estimate": (
        "Classification under way: it should end {time}. You need to do nothing.",
        "Classificação em andamento: deve terminar {time}. Não precisa fazer nada.",
    ),
    "wait until": (
        "You need to do nothing: {why}, and it goes on by itself.",
        "Não precisa fazer nada: {why}, e ela continua sozinha.",
    ),
    "act because": ("It needs you: {why}.", "Precisa de você: {why}."),
    "act errors": (
        "{count} documents have no label. See below what to do about each, then reprocess only them.",
        "{count} documentos ficaram sem rótulo. Veja abaixo o que fazer com cada um e reprocesse só eles.",
    ),
    "act one error": (
        "One document has no label. See below what to do about it, then reprocess only it.",
        "Um documento ficou sem rótulo. Veja abaixo o que fazer e reprocesse só ele.",
    ),
    "act check": (
        "Done. {count} labels have low confidence: please check them.",
        "Terminou. {count} rótulos têm confiança baixa: confira-os.",
    ),
    "all done": ("Done: nothing needs you.", "Terminou: nada precisa de você."),
    "was cancelled": (
        "It was cancelled. Labels that were there by then stay.",
        "Foi cancelada. Os rótulos prontos até então continuam.",
    ),
    "being cancelled": (
        "It is being cancelled: what runs now ends first.",
        "Está sendo cancelada: o que está rodando termina antes.",
    ),
    "cause person": ("it waits for a person", "espera uma pessoa"),
    "cause delayed": (
        "failed documents wait for their next try",
        "documentos que falharam esperam a próxima tentativa",
    ),
    "cause external_work": ("work is done elsewhere", "o trabalho está sendo feito fora daqui"),
    "cause undefined_step": (
        "no worker has this version of the classifier; start one: retoma worker retoma_apps.classifier",
        "nenhum worker tem esta versão do classificador; inicie um: retoma worker retoma_apps.classifier",
    ),
    "cause no_worker": (
        "no worker is alive; start one: retoma worker retoma_apps.classifier",
        "nenhum worker está ativo; inicie um: retoma worker retoma_apps.classifier",
    ),
    "cause not_claimed": (
        "no live worker takes these documents; start one: retoma worker retoma_apps.classifier",
        "nenhum worker ativo pega estes documentos; inicie um: retoma worker retoma_apps.classifier",
    ),
    "cause suspect": (
        "a document that was there when a worker died runs alone",
        "um documento que estava lá quando um worker morreu roda sozinho",
    ),
    "cause capacity": ("all workers are busy", "todos os workers estão ocupados"),
    "cause pool": ("the model answers as many at a time as it may", "o modelo já atende o máximo ao mesmo tempo"),
    "cause pool_too_small": ("the pool of the model has no slots", "o grupo de vagas do modelo está sem vagas"),
    "cause pool_paused": ("the provider of the model asked to wait", "o provedor do modelo pediu para esperar"),
    "cause pool_rate": ("only so many begin in a second", "só alguns podem começar por segundo"),
    "cause pool_share": ("the project has its share of the model's answers", "o projeto já usa a sua parte do modelo"),
    "cause provider_down": ("the provider of the model does not answer", "o provedor do modelo não responde"),
    "cause provider_rejected": (
        "the provider of the model refuses us; see its key and its credit",
        "o provedor do modelo nos recusa; veja a chave e o crédito",
    ),
    "cause no_progress": (
        "a document is held beyond its time without a sign of life",
        "um documento passou do tempo sem dar sinal",
    ),
    "cause nothing_runs": ("nothing runs, though it is not over", "nada está rodando, embora não tenha terminado"),
    "cause unknown": ("it makes no progress", "ela não progride"),
    # each time that it stood still
    "episodes": ("Times that it stood still", "Vezes em que travou"),
    "at": ("When", "Quando"),
    "went on": ("How it went on", "Como continuou"),
    "way still": ("it still stands", "ainda está parada"),
    "way itself": ("by itself, the cause having passed", "sozinha, passada a causa"),
    "way watchdog": ("resumed automatically", "retomada automaticamente"),
    "way person": ("resumed by {by}", "retomada por {by}"),
    "way not": ("it did not", "não continuou"),
    "unpriced": ("and {count} without a price", "e {count} sem preço"),
    # documents
    "all documents": ("Documents", "Documentos"),
    "document": ("Document", "Documento"),
    "label": ("Label", "Rótulo"),
    "confidence": ("Confidence", "Confiança"),
    "attempts": ("Attempts", "Tentativas"),
    "error": ("Error", "Erro"),
    "act": ("Action", "Ação"),
    "find document": ("Part of a name", "Parte de um nome"),
    "filter": ("Filter", "Filtrar"),
    "clear": ("Clear filters", "Limpar filtros"),
    "no match": ("No document matches.", "Nenhum documento corresponde."),
    "same as": ("same as {code}", "igual a {code}"),
    "model said": ("the model said {label}", "o modelo disse {label}"),
    "model said nothing": ("by a person", "por uma pessoa"),
    "confirmed": ("confirmed by a person", "confirmado por uma pessoa"),
    "confirm": ("Confirm", "Confirmar"),
    "correct": ("Correct", "Corrigir"),
    "skip": ("Skip", "Pular"),
    "keep label": ("Save", "Salvar"),
    "choose label": ("Right label", "Rótulo certo"),
    "not yet": (
        "Labels can be corrected and documents skipped once the execution is over.",
        "Rótulos podem ser corrigidos e documentos pulados quando a execução terminar.",
    ),
    "cancelled stays": (
        "In a cancelled execution nothing can be corrected any more.",
        "Em uma execução cancelada nada mais pode ser corrigido.",
    ),
    "what failed": ("What failed, and what to do", "O que falhou, e o que fazer"),
    "map": ("The batch, document by document", "O lote, documento a documento"),
    "by label": ("Labels", "Rótulos"),
    # live
    "silent": ("No events since {time}.", "Sem eventos desde {time}."),
    "silent why": (
        "The live connection may be down; this page shows how it stood then. The work goes on without it.",
        "A conexão ao vivo pode ter caído; esta página mostra como estava então. O trabalho continua sem ela.",
    ),
    "reload": ("Reload now", "Recarregar agora"),
    # how an act went
    "said criado": ("The project is there. Now send documents.", "Projeto criado. Agora envie documentos."),
    "said salvo": (
        "The project is saved. Executions that began before keep what was in force then.",
        "Projeto salvo. Execuções que já começaram continuam com o que valia antes.",
    ),
    "said excluido": ("The project is deleted. Its executions stay.", "Projeto excluído. As execuções continuam."),
    "said retomada": ("The execution goes on.", "A execução continua."),
    "said retomada_sem_worker": (
        "The execution is resumed, but no worker is running. It continues when you start one: "
        "retoma worker retoma_apps.classifier",
        "A execução foi retomada, mas nenhum worker está ativo. Ela continua quando você iniciar um: "
        "retoma worker retoma_apps.classifier",
    ),
    "said refazendo": (
        "Only the documents with errors are done again.",
        "Só os documentos com erro estão sendo refeitos.",
    ),
    "said retomada_antes": (
        "The execution goes on first. When it has ended, reprocess the errors.",
        "Primeiro a execução continua. Quando terminar, reprocesse os erros.",
    ),
    "said sem_erros": ("There are no errors to reprocess.", "Não há erros para reprocessar."),
    "said cancelada": ("The execution is cancelled.", "A execução foi cancelada."),
    "said corrigido": ("The label is corrected.", "O rótulo foi corrigido."),
    "said confirmado": ("The label is confirmed.", "O rótulo foi confirmado."),
    "said pulado": ("The document is left out.", "O documento foi pulado."),
    "said ocupada": (
        "Not now: the execution is at work. Try again when it is over.",
        "Agora não: a execução está em andamento. Tente de novo quando terminar.",
    ),
    "said sem_rotulo": ("Choose a label of this execution.", "Escolha um rótulo desta execução."),
}

# What an error code means, and what to do about it.
_CODES = {
    "FILE_DAMAGED": (
        "The file is damaged. Open it, save it anew and send it again.",
        "O arquivo está danificado. Abra-o, salve de novo e envie outra vez.",
    ),
    "FILE_EMPTY": (
        "There is no text in the file. Send one with content.",
        "O arquivo não tem texto. Envie um com conteúdo.",
    ),
    "FILE_ENCRYPTED": (
        "The file is locked with a password. Send it without one.",
        "O arquivo está protegido por senha. Envie-o sem senha.",
    ),
    "FILE_NEEDS_OCR": (
        "A page is a picture, and reading pictures (OCR) is not installed on the workers.",
        "Uma página é imagem, e a leitura de imagens (OCR) não está instalada nos workers.",
    ),
    "FILE_TOO_LARGE": (
        "The file is too large. Split it or make it smaller.",
        "O arquivo é grande demais. Divida ou reduza.",
    ),
    "FILE_UNSUPPORTED": (
        "This kind of file is not read here. Send PDF, docx, an image or plain text.",
        "Este tipo de arquivo não é lido aqui. Envie PDF, docx, imagem ou texto puro.",
    ),
    "FILE_MISSING": (
        "The file is not in the storage any more. Send it again.",
        "O arquivo não está mais guardado. Envie de novo.",
    ),
    "NOT_INSTALLED": (
        "A worker lacks a part: install retoma[classifier] there.",
        "Falta uma parte em um worker: instale lá retoma[classifier].",
    ),
    "NO_EXAMPLES": (
        "The offline model has no examples to learn from. Give the project some.",
        "O modelo offline não tem exemplos para aprender. Dê alguns ao projeto.",
    ),
    "TIMEOUT": (
        "The document took more than 2 minutes. Reprocess it; if that repeats, split or skip it.",
        "O documento passou de 2 minutos. Reprocesse; se repetir, divida ou pule.",
    ),
    "CPU_LIMIT": (
        "Reading the document took too much computing. Split or skip it.",
        "A leitura do documento exigiu processamento demais. Divida ou pule.",
    ),
    "CRASHED": (
        "The document crashes its reader. Save it anew from another program, or skip it.",
        "O documento derruba o leitor. Salve de novo por outro programa, ou pule.",
    ),
    "OUT_OF_MEMORY": (
        "Reading the document takes too much memory. Split it or skip it.",
        "A leitura do documento exige memória demais. Divida ou pule.",
    ),
    "QUARANTINED": (
        "The document was there each time a worker died, so it is not tried any more. Skip it or send it otherwise.",
        "O documento estava lá cada vez que um worker morreu, e não é mais tentado. Pule ou envie de outro modo.",
    ),
    "WORKER_DIED": (
        "The worker died while it had this document. Reprocess it.",
        "O worker morreu enquanto estava com este documento. Reprocesse.",
    ),
    "INTERRUPTED": ("It was interrupted. Reprocess it.", "Foi interrompido. Reprocesse."),
    "BLOCKED_LOOP": (
        "A worker stood still while it had this document. Reprocess it.",
        "Um worker parou enquanto estava com este documento. Reprocesse.",
    ),
    "RUN_STOPPED": (
        "The execution stopped before it was its turn. Continue from where it stopped.",
        "A execução parou antes da vez dele. Continue de onde parou.",
    ),
    "STUCK": (
        "The execution was given up without progress. Continue from where it stopped.",
        "A execução foi abandonada sem progresso. Continue de onde parou.",
    ),
    "DEPENDENCY_FAILED": (
        "What it needs has failed. Reprocess the errors.",
        "O que ele precisa falhou. Reprocesse os erros.",
    ),
    "TOO_LARGE": ("The document has too much text. Split it.", "O documento tem texto demais. Divida."),
    "LLM_TIMEOUT": (
        "The model did not answer in time. Reprocess it later.",
        "O modelo não respondeu a tempo. Reprocesse mais tarde.",
    ),
    "LLM_UNAVAILABLE": (
        "The model was not available. Reprocess it later, or choose another model.",
        "O modelo não estava disponível. Reprocesse mais tarde, ou escolha outro modelo.",
    ),
    "LLM_INVALID_ANSWER": (
        "The provider's answer made no sense. Reprocess it.",
        "A resposta do provedor não fez sentido. Reprocesse.",
    ),
    "LLM_INVALID_JSON": (
        "The model did not answer in the form asked for. Reprocess it, or choose another model.",
        "O modelo não respondeu na forma pedida. Reprocesse, ou escolha outro modelo.",
    ),
    "LLM_CUT_SHORT": (
        "The model's answer was cut short. Reprocess it, or choose another model.",
        "A resposta do modelo foi cortada. Reprocesse, ou escolha outro modelo.",
    ),
    "LLM_CONTENT_FILTERED": (
        "The model declines this text. Label it yourself, or choose another model.",
        "O modelo se recusa a ler este texto. Dê o rótulo você mesmo, ou escolha outro modelo.",
    ),
    "LLM_BAD_REQUEST": (
        "The provider did not understand the request. See the project's model.",
        "O provedor não entendeu o pedido. Veja o modelo do projeto.",
    ),
    "LLM_NO_SUCH_MODEL": (
        "There is no such model. Name another in the project and send the documents again.",
        "Este modelo não existe. Indique outro no projeto e envie os documentos de novo.",
    ),
    "LLM_TOO_LONG": (
        "The text is too long for the model. Split it, or choose another model.",
        "O texto é longo demais para o modelo. Divida, ou escolha outro modelo.",
    ),
    "LLM_ERROR": ("The model failed. Reprocess it later.", "O modelo falhou. Reprocesse mais tarde."),
    "RATE_LIMITED": (
        "The provider asked to go slower. Reprocess it later.",
        "O provedor pediu para ir mais devagar. Reprocesse mais tarde.",
    ),
    "PROVIDER_DOWN": (
        "The provider is down. Reprocess it later.",
        "O provedor está fora do ar. Reprocesse mais tarde.",
    ),
    "PROVIDER_REJECTED": (
        "The provider refuses us. See its key and its credit, then reprocess.",
        "O provedor nos recusa. Veja a chave e o crédito, e reprocesse.",
    ),
}
_OTHER = (
    "It failed for a reason of its own, told beside it. Reprocess it; if that repeats, skip it.",
    "Falhou por um motivo próprio, dito ao lado. Reprocesse; se repetir, pule.",
)
KNOWN = frozenset(_WORDS)
CODES = frozenset(_CODES)


class Words:
    """Sentences in one language."""

    def __init__(self, language: str) -> None:
        self._number = LANGUAGES.index(language)

    def __call__(self, name: str, **values: Any) -> str:
        sentence = _WORDS[name][self._number]
        return sentence.format(**values) if values else sentence

    def said(self, name: str) -> str | None:
        """How an act went; None for what is no word of ours, since anyone can write an address."""
        return self(f"said {name}") if f"said {name}" in _WORDS else None

    def code(self, code: str) -> str:
        """What this error means, and what to do."""
        return _CODES.get(code, _OTHER)[self._number]

    def counted(self, many: str, one: str, count: int, shown: str) -> str:
        return self(one) if count == 1 else self(many, count=shown)
