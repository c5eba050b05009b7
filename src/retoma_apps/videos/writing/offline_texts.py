"""Texts for the offline writer: openings, general passages for any topic, and endings.

`TOPIC` is replaced with the topic. Every passage is a separate scene with its own picture.
"""

from __future__ import annotations

from dataclasses import dataclass

from retoma_apps.videos.models import Language, Scene

TOPIC = "TÓPICO"


@dataclass(frozen=True)
class ScriptTexts:
    """`leads` introduce facts; `passages` are in the order of their use."""

    title: str
    opening: Scene
    leads: tuple[str, ...]
    passages: tuple[Scene, ...]
    closing: Scene
    closing_without_sources: Scene
    summary: str
    sources: str
    offline: str
    tags: tuple[str, ...]
    hooks: tuple[str, ...]


def _scenes(*texts: tuple[str, str]) -> tuple[Scene, ...]:
    return tuple(Scene(visual=visual, text=text) for visual, text in texts)


_PORTUGUESE = ScriptTexts(
    title=f"{TOPIC}: um primeiro olhar",
    opening=Scene(
        visual="caderno e caneta",
        text=f"O assunto de hoje é: {TOPIC}. Este roteiro foi escrito offline, com textos prontos e fatos guardados.",
    ),
    leads=(
        "Comece por aqui.",
        "Há um segundo ponto.",
        "Guarde também isto.",
        "Vale saber mais uma coisa.",
        "Veja um dado importante.",
        "Outro detalhe ajuda a entender.",
        "E não é só isso.",
        "Este próximo dado merece uma pausa.",
        "Há ainda um lado prático.",
        "Por fim, um fato curioso.",
    ),
    passages=_scenes(
        (
            "pergunta no quadro",
            f"A primeira pergunta sobre {TOPIC} é a mais simples: do que se trata? Muita coisa parece pequena vista de "
            "fora. Um olhar de perto costuma mostrar mais partes do que se esperava.",
        ),
        (
            "caixa de peças",
            "Ajuda olhar as partes, uma a uma. Cada uma tem a sua tarefa, e nenhuma trabalha sozinha. Quando uma parte "
            "muda, as outras precisam acompanhar.",
        ),
        (
            "relógio antigo",
            "Nem sempre foi como conhecemos hoje. Houve um tempo antes, um começo e muitas mudanças pequenas. O que "
            "vemos agora é um momento de uma história mais longa.",
        ),
        (
            "lanterna no escuro",
            f"Nem tudo se sabe sobre {TOPIC}. Há perguntas abertas e gente que trabalha nelas todos os dias. Algumas "
            "respostas de hoje vão parecer outras daqui a dez anos.",
        ),
        (
            "mãos em detalhe",
            "Um exemplo pequeno diz mais do que uma definição longa. Um caso, visto do começo ao fim, mostra o que vem "
            "antes, o que vem depois e o que liga um ao outro.",
        ),
        (
            "páginas de dicionário",
            "O assunto tem palavras próprias. Algumas soam difíceis e dizem algo simples. Outras soam simples e dizem "
            "algo que só quem é da área percebe.",
        ),
        (
            "mapa do mundo",
            "O lugar também importa. O que é comum em um país pode ser raro em outro, e o mesmo nome pode indicar "
            "coisas diferentes. De longe quase não se nota.",
        ),
        (
            "lupa sobre documento",
            "Nem tudo o que se diz por aí é verdade. Uma boa história corre depressa e muda um pouco cada vez que é "
            "contada. Por isso importa saber de onde vem cada afirmação.",
        ),
        (
            "gotas na janela",
            "Os detalhes também contam. O que parece pequeno pode mudar o todo, e o que parece grande às vezes quase "
            "não pesa. Vale a pena olhar duas vezes.",
        ),
        (
            "pessoas na rua",
            "O assunto também tem a ver com pessoas. Umas o conhecem bem, outras trabalham com ele, e muitas nunca "
            "pensaram nisso. Cada uma contaria esta história de um jeito diferente.",
        ),
        (
            "balança de pratos",
            "Há mais de um jeito de olhar para o assunto. Uns veem o que é útil nele, outros o que é belo ou estranho. "
            "Os dois podem ter razão, porque não perguntam a mesma coisa.",
        ),
        (
            "calendário na parede",
            "O tempo faz a sua parte. Há o que acontece em um instante e há o que leva meses ou anos. Quem vê só o fim "
            "esquece como o caminho foi longo.",
        ),
        (
            "calculadora e papel",
            "Os números também contam. Quanto, quantos, com que frequência? Um número diz mais ao lado de outro: o do "
            "ano anterior ou o do país vizinho.",
        ),
        (
            "placas de estrada",
            "Nem sempre tudo segue o caminho de costume. Uma mudança pequena pode bastar. O que acontece depois mostra "
            "bem como o conjunto se sustenta.",
        ),
        (
            "ponte sobre rio",
            "Ele também toca coisas que parecem distantes. O que muda aqui é sentido em outro lugar, às vezes anos "
            "depois. São laços fáceis de esquecer.",
        ),
        (
            "família à mesa",
            "No dia a dia, pouca gente pensa nisso. Mas os sinais estão mais perto do que parece: em uma palavra que "
            "usamos, em algo que compramos, em um costume que ninguém explica.",
        ),
        (
            "jornal dobrado",
            f"Volta e meia há notícias sobre {TOPIC}. Um dia traz uma promessa, outro traz um alerta. O que ainda vale "
            "depois de um ano costuma valer mais do que o que foi dito primeiro.",
        ),
        (
            "trilha na floresta",
            "Raramente existe uma resposta só. Outra pode ser mais simples ou servir melhor em outro lugar, e há boas "
            "razões para cada uma. Qual vale depende da pergunta.",
        ),
        (
            "nascer do sol",
            "E o que vem depois? Muita coisa vai mudar, e uma parte mais depressa do que se pensa. Outra parte vai "
            "ficar, porque já durou muito tempo.",
        ),
        (
            "vista do alto",
            "De longe, as partes formam um quadro só: de onde vem, quem participa, do que precisa e o que deixa para "
            "trás.",
        ),
        (
            "página de caderno",
            "Três perguntas valem a pena: de onde isso vem, do que precisa e o que muda?",
        ),
        (
            "porta aberta",
            "Sempre há mais do que mostra o primeiro olhar.",
        ),
    ),
    closing=Scene(
        visual="pessoa lendo",
        text="Confira as fontes na descrição, tire as suas próprias conclusões e até a próxima.",
    ),
    closing_without_sources=Scene(
        visual="pessoa lendo",
        text="Este foi um primeiro olhar, ainda sem fontes. Tire as suas próprias conclusões e até a próxima.",
    ),
    summary=f"Um primeiro olhar sobre {TOPIC}.",
    sources="Fontes:",
    offline="Material offline: roteiro montado com textos prontos e fatos guardados, sem modelo de linguagem e sem "
    "pesquisa na internet.",
    tags=("material offline",),
    hooks=("O ESSENCIAL", "EM RESUMO", "UM PRIMEIRO OLHAR", "DE PERTO"),
)

_ENGLISH = ScriptTexts(
    title=f"{TOPIC}: a first look",
    opening=Scene(
        visual="notebook and pen",
        text=f"Today's subject: {TOPIC}. This script was written offline, from ready-made text and stored facts.",
    ),
    leads=(
        "Start here.",
        "There is a second point.",
        "Keep this in mind too.",
        "One more thing is worth knowing.",
        "Here is an important detail.",
        "Another detail helps.",
        "And that is not all.",
        "Listen closely to this one.",
        "There is a practical side as well.",
        "Last, a curious fact.",
    ),
    passages=_scenes(
        (
            "question on blackboard",
            f"A first question about {TOPIC} is the simplest one: what is at the heart of it? Many things look small "
            "from outside. A closer look often shows more parts than anyone expected.",
        ),
        (
            "box of parts",
            "It helps to look at the parts one by one. Each has its own task, and none of them works alone. When one "
            "part changes, the others have to follow.",
        ),
        (
            "old clock",
            "It was not always as we know it today. There was a time before, a beginning, and many small changes. What "
            "we see now is one moment of a longer story.",
        ),
        (
            "flashlight in dark",
            f"Not everything about {TOPIC} is known. There are open questions, and people who work on them every day. "
            "Some of today's answers will look different in ten years.",
        ),
        (
            "hands close up",
            "A small example says more than a long definition. One case, followed from start to end, shows what comes "
            "first, what comes next, and what ties the two together.",
        ),
        (
            "dictionary pages",
            "It has words of its own. Some of them sound hard and mean something simple. Others sound simple and mean "
            "something that only people in the field hear in them.",
        ),
        (
            "world map",
            "The place matters too. What is common in one country can be rare in another, and the same name can stand "
            "for different things. From far away this is hard to see.",
        ),
        (
            "magnifying glass",
            "Not all that is said about it is true. A good story travels fast, and each time it is told it changes a "
            "little. That is why it matters where a claim comes from.",
        ),
        (
            "drops on window",
            "Details count as well. What looks small can change the whole, and what looks big may hardly matter. It is "
            "worth looking twice.",
        ),
        (
            "people in street",
            "It has to do with people as well. Some know it well, some work with it, and many have never thought of "
            "it. Each of them would tell this story in another way.",
        ),
        (
            "balance scale",
            "There is more than one way to look at it. Some see what is useful in it, others what is beautiful or "
            "strange. Both can be right, because they do not ask the same question.",
        ),
        (
            "wall calendar",
            "Time plays its part. Some of it happens in a moment, and some takes months or years. Whoever sees only "
            "the end forgets how long the way was.",
        ),
        (
            "calculator and paper",
            "Numbers belong to it as well. How much, how many, how often? A figure says most beside another one: that "
            "of the year before, or of the country next door.",
        ),
        (
            "road signs",
            "Things do not always go their usual way. One small change can be enough. What happens then shows best how "
            "all of it holds together.",
        ),
        (
            "bridge over river",
            "It also touches things that seem far away. What changes here is felt somewhere else, sometimes years "
            "later. Such ties are easy to miss.",
        ),
        (
            "family at table",
            "In daily life few people think of it. Yet traces of it are closer than they seem: in a word we use, in a "
            "thing we buy, in a habit that nobody explains.",
        ),
        (
            "folded newspaper",
            f"Now and then there is news about {TOPIC}. One day brings a promise, another a warning. What still holds "
            "after a year is usually worth more than what was said first.",
        ),
        (
            "forest trail",
            "There is rarely only one answer. Another may be simpler, or fit better somewhere else, and there are good "
            "reasons for each. Which one counts depends on the question.",
        ),
        (
            "sunrise over city",
            "And what comes next? Much will change, and some of it sooner than we think. The rest will stay, because "
            "it has lasted for a long time already.",
        ),
        (
            "view from hilltop",
            "From a distance the parts become one picture: where it comes from, who takes part, what it needs, and "
            "what it leaves behind.",
        ),
        (
            "notebook page",
            "Three questions are worth keeping: where does it come from, what does it need, what does it change?",
        ),
        (
            "open door",
            "There is always more to it than the first look shows.",
        ),
    ),
    closing=Scene(
        visual="person reading",
        text="Check the sources in the description, draw your own conclusions, and see you next time.",
    ),
    closing_without_sources=Scene(
        visual="person reading",
        text="This was a first look, without sources as yet. Draw your own conclusions, and see you next time.",
    ),
    summary=f"A first look at {TOPIC}.",
    sources="Sources:",
    offline="Offline material: a script put together from ready-made text and stored facts, without a language model "
    "and without a search of the internet.",
    tags=("offline material",),
    hooks=("THE ESSENTIALS", "IN SHORT", "A FIRST LOOK", "UP CLOSE"),
)

SCRIPT_TEXTS: dict[Language, ScriptTexts] = {"pt-BR": _PORTUGUESE, "en": _ENGLISH}
