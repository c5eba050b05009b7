"""What the pages of videos say, in English and in Brazilian Portuguese. Those of reviews are with their templates."""

from __future__ import annotations

from typing import Any

LANGUAGES = ("en", "pt")

_WORDS = {
    "videos": ("Videos", "Vídeos"),
    "channels": ("Channels", "Canais"),
    "metrics": ("Metrics", "Métricas"),
    # stages
    "stage draft": ("Draft", "Rascunho"),
    "stage researching": ("Researching", "Em pesquisa"),
    "stage scripted": ("Scripted", "Com roteiro"),
    "stage producing": ("Producing", "Em produção"),
    "stage assembling": ("Assembling", "Em montagem"),
    "stage ready": ("Ready", "Pronto"),
    "stage uploaded": ("Uploaded", "Enviado"),
    "stage published": ("Published", "Publicado"),
    "stage failed": ("Failed", "Falhou"),
    "stage rejected": ("Rejected", "Rejeitado"),
    "stage cancelled": ("Cancelled", "Cancelado"),
    # steps
    "step knowledge_query": ("What is known", "Base de conhecimento"),
    "step research": ("Research", "Pesquisa"),
    "step script_generation": ("Script", "Roteiro"),
    "step script_review": ("Review of the script", "Revisão do roteiro"),
    "step audio_generation": ("Narration", "Narração"),
    "step audio_review": ("Review of the narration", "Revisão da narração"),
    "step broll_search": ("Footage", "Imagens de apoio"),
    "step broll_review": ("Review of the footage", "Revisão das imagens de apoio"),
    "step video_assembly": ("Assembly", "Montagem"),
    "step subtitle_gen": ("Subtitles", "Legendas"),
    "step thumbnail_gen": ("Thumbnails", "Capas"),
    "step final_review": ("Final review", "Revisão final"),
    "step upload": ("Upload", "Envio"),
    "step knowledge_store": ("Keeping what was learnt", "Guardar o que se aprendeu"),
    "step analytics_init": ("First figures", "Primeiros números"),
    "step publication": ("Publication", "Publicação"),
    # the list
    "topic": ("Topic", "Tema"),
    "channel": ("Channel", "Canal"),
    "stage": ("Stage", "Etapa"),
    "step": ("Step now", "Passo atual"),
    "age": ("Age", "Idade"),
    "open": ("To open", "Abrir"),
    "review": ("Review", "Revisar"),
    "watch": ("Watch", "Assistir"),
    "continue": ("Continue", "Continuar"),
    "analytics": (
        "Recorded after the upload: {length}, {words} words, since {time} UTC",
        "Registrado após o envio: {length}, {words} palavras, desde {time} UTC",
    ),
    "starts at": ("Starts on {time} UTC", "Começa em {time} UTC"),
    "thumbnail refused": ("Published without its thumbnail:", "Publicado sem a capa:"),
    "older": ("Older", "Mais antigos"),
    "newest": ("Newest", "Mais novos"),
    "no videos": ("Order the first video", "Peça o primeiro vídeo"),
    "no videos why": (
        "Say what it is about. It is researched, written, narrated and assembled, and people decide four times.",
        "Diga o tema. Ele é pesquisado, escrito, narrado e montado, e pessoas decidem quatro vezes.",
    ),
    # forms
    "order": ("Order a video", "Pedir um vídeo"),
    "order now": ("Order the video", "Pedir o vídeo"),
    "field topic": ("Topic", "Tema"),
    "field channel": ("Channel", "Canal"),
    "field language": ("Language", "Idioma"),
    "field start_at": ("Start work at (UTC)", "Começar em (UTC)"),
    "field scheduled_for": ("Publish at (UTC)", "Publicar em (UTC)"),
    "field voice": ("Voice", "Voz"),
    "field style": ("Style", "Estilo"),
    "field seconds": ("Length in seconds", "Duração em segundos"),
    "field budget": ("Budget of a video, in US dollars", "Orçamento por vídeo, em dólares"),
    "field account": ("YouTube account", "Conta do YouTube"),
    "hint topic": ("What the video is about, in a sentence.", "Do que o vídeo trata, em uma frase."),
    "hint channel": ("A new name makes a new channel.", "Um nome novo cria um canal novo."),
    "hint language": ("Of the script and the narration.", "Do roteiro e da narração."),
    "hint start_at": ("Empty: now.", "Vazio: agora."),
    "hint scheduled_for": ("Empty: as soon as it is approved.", "Vazio: assim que for aprovado."),
    "hint voice": (
        "One that has its key here, also elevenlabs_<id>. Empty: the usual voice of the language.",
        "Uma que tenha chave aqui, também elevenlabs_<id>. Vazio: a voz usual do idioma.",
    ),
    "hint style": ("How it should sound, in words.", "Como deve soar, em palavras."),
    "hint seconds": ("From 20 to 3,600.", "De 20 a 3.600."),
    "hint budget": (
        "From 0 to 10,000. It is kept, and stops nothing yet.",
        "De 0 a 10.000. Fica anotado; ainda não interrompe nada.",
    ),
    "hint account": (
        "Empty if there is only one. Its key is YOUTUBE_REFRESH_TOKEN_ and the account's name.",
        "Vazio se houver só uma. A chave é YOUTUBE_REFRESH_TOKEN_ e o nome da conta.",
    ),
    "wrong topic": ("Say what it is about, in 3 to 300 letters.", "Diga o tema, com 3 a 300 letras."),
    "wrong channel": ("A name of 1 to 100 letters, without a slash.", "Um nome de 1 a 100 letras, sem barra."),
    "wrong language": ("Choose one of the languages.", "Escolha um dos idiomas."),
    "wrong start_at": ("A day and a time, as 2026-02-04T12:00.", "Um dia e uma hora, como 2026-02-04T12:00."),
    "starts after": (
        "Work must begin before the video is published.",
        "O trabalho precisa começar antes da publicação.",
    ),
    "wrong scheduled_for": ("A day and a time, as 2026-02-04T12:00.", "Um dia e uma hora, como 2026-02-04T12:00."),
    "too late": ("This time has passed.", "Essa hora já passou."),
    "wrong voice": (
        "This voice is not known, has no key, or speaks another language.",
        "Esta voz não é conhecida, não tem chave, ou fala outro idioma.",
    ),
    "wrong style": ("At most 500 letters.", "No máximo 500 letras."),
    "wrong seconds": ("A whole number from 20 to 3,600.", "Um número inteiro de 20 a 3.600."),
    "wrong budget": ("A number from 0 to 10,000.", "Um número de 0 a 10.000."),
    "wrong account": ("At most 100 letters, all Latin.", "No máximo 100 letras, todas latinas."),
    "wrong": ("Something is not right yet. See below.", "Ainda há algo errado. Veja abaixo."),
    "of the channel": ("As the channel has it", "O do canal"),
    "pt-BR": ("Brazilian Portuguese", "Português do Brasil"),
    "en": ("English", "Inglês"),
    "save": ("Save", "Salvar"),
    "said ordered": ("The video is ordered.", "Vídeo pedido."),
    "said saved": ("Saved. It holds for videos that are ordered from now on.", "Salvo. Vale para os próximos pedidos."),
    # channels
    "new channel": ("New channel", "Novo canal"),
    "open channel": ("Set it up", "Configurar"),
    "usual": ("with the usual settings", "com as configurações usuais"),
    "channel why": (
        "What its videos have in common. A video keeps what held when it was ordered.",
        "O que os vídeos do canal têm em comum. Um vídeo fica com o que valia quando foi pedido.",
    ),
    "colleague": ("Somebody has changed it meanwhile", "Alguém mudou enquanto isso"),
    "colleague why": (
        "Nothing was saved. Look at what is below, and save again if it is right.",
        "Nada foi salvo. Confira abaixo e salve de novo se estiver certo.",
    ),
    # what is offline
    "offline": ("Done on this machine, without a service:", "Feito nesta máquina, sem serviço externo:"),
    "offline how": ("What would change it", "O que mudaria isso"),
    "short writer": ("scripts", "roteiros"),
    "short speech": ("narration", "narração"),
    "short footage": ("footage", "imagens de apoio"),
    "short images": ("backgrounds of thumbnails", "fundos das capas"),
    "short youtube": ("publication", "publicação"),
    "or": ("or", "ou"),
    "and": ("and", "e"),
    "offline writer": ("Scripts come of templates", "Roteiros vêm de modelos prontos"),
    "offline speech": ("Narration is by eSpeak", "A narração é do eSpeak"),
    "offline footage": ("Footage is drawn here", "As imagens de apoio são desenhadas aqui"),
    "offline images": ("Thumbnails' backgrounds are drawn here", "Os fundos das capas são desenhados aqui"),
    "offline youtube": ("Videos are published to a folder", "Os vídeos são publicados em uma pasta"),
    # the channel of this machine
    "local": ("Published on this machine", "Publicado nesta máquina"),
    "others": ("Also here", "Também aqui"),
    "synthetic": ("Says that it is synthetic", "Declara que é sintético"),
    "not yet": ("Public from {time} UTC", "Público a partir de {time} UTC"),
    "no local": ("There is no such video here.", "Esse vídeo não está aqui."),
    # metrics
    "metrics why": ("The last 30 days.", "Os últimos 30 dias."),
    "metric": ("Metric", "Métrica"),
    "value": ("Now", "Agora"),
    "target": ("Target", "Meta"),
    "verdict": ("Verdict", "Situação"),
    "met": ("On target", "Na meta"),
    "missed": ("Off target", "Fora da meta"),
    "no data": ("No data yet", "Ainda sem dados"),
    "metric wait": ("Average wait for a decision", "Espera média por uma decisão"),
    "metric first": ("Approved the first time", "Aprovados na primeira vez"),
    "metric retry": ("Steps that needed a retry", "Passos que precisaram de nova tentativa"),
    "metric time": ("From start to end, without waiting for people", "Do início ao fim, sem a espera por pessoas"),
    "metric failed": ("Failed for good", "Falharam de vez"),
    "below": ("under {value}", "menos de {value}"),
    "above": ("over {value}", "mais de {value}"),
    "of reviews": ("{count} decisions", "{count} decisões"),
    "of first": ("{part} of {count} first decisions", "{part} de {count} primeiras decisões"),
    "of steps": (
        "{part} of {count} finished steps, also of videos under way",
        "{part} de {count} passos terminados, também de vídeos em andamento",
    ),
    "of runs": ("{part} of {count} videos that ended", "{part} de {count} vídeos encerrados"),
    "of times": (
        "finished videos, published or waiting for their day: {count}; half of them within {time}",
        "vídeos prontos, publicados ou à espera do seu dia: {count}; metade em até {time}",
    ),
    "time why": (
        "Neither open reviews nor the wait for the day of publication count. Rejected or cancelled is not failed.",
        "Não contam revisões abertas nem a espera pelo dia da publicação; rejeitados e cancelados não falharam.",
    ),
}
KNOWN = frozenset(_WORDS)
LABELS = {name.removeprefix("step "): said[0] for name, said in _WORDS.items() if name.startswith("step ")}


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
