"""What the offline writer can say about any topic: how to begin, how to study it, and how to end.

`TOPIC` stands where the topic goes. Every passage is a scene of its own, with what is to be seen.
"""

from __future__ import annotations

from dataclasses import dataclass

from retoma_apps.videos.models import Language, Scene

TOPIC = "TÓPICO"


@dataclass(frozen=True)
class Book:
    """`leads` introduce facts, `passages` are in the order in which they are told."""

    title: str
    opening: Scene
    leads: tuple[str, ...]
    passages: tuple[Scene, ...]
    closing: Scene
    closing_without_sources: Scene
    answer: str
    unanswered: str
    summary: str
    sources: str
    offline: str
    tags: tuple[str, ...]
    hooks: tuple[str, ...]


def _scenes(*told: tuple[str, str]) -> tuple[Scene, ...]:
    return tuple(Scene(visual=visual, text=text) for visual, text in told)


_PORTUGUESE = Book(
    title=f"{TOPIC}: primeiros passos",
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
            f"Antes de tudo, faça uma pergunta simples: o que eu quero saber sobre {TOPIC}? Uma boa pergunta cabe em "
            "uma frase. Ela mostra por onde começar e também quando já é hora de parar.",
        ),
        (
            "estante de livros",
            "Depois, escolha duas ou três fontes de confiança. Prefira quem assina o que escreve, conta de onde tirou "
            "cada dado e corrige os próprios erros. Um livro básico costuma valer mais do que dez vídeos soltos.",
        ),
        (
            "mapa de ideias",
            "Faça um mapa em uma folha de papel. No centro, escreva o tema. Em volta, as partes dele e as setas que "
            "as ligam. O que ficar sem seta é o que você ainda não entendeu.",
        ),
        (
            "páginas de dicionário",
            "Todo assunto tem palavras próprias. Anote as que se repetem e procure o sentido de cada uma. Com vinte "
            "palavras bem entendidas, quase qualquer texto da área fica mais leve.",
        ),
        (
            "relógio antigo",
            "Olhe também para o passado. Saber como uma ideia nasceu, e que problema ela veio resolver, ajuda a "
            "lembrar dela. A história dá ordem ao que parecia uma lista de nomes.",
        ),
        (
            "balança de pratos",
            "Compare pelo menos duas opiniões. Quando elas concordam, a base é firme. Quando discordam, pergunte em "
            "que ponto se separam: nos fatos, nas contas ou no que cada lado considera importante.",
        ),
        (
            "calculadora e papel",
            "Desconfie de números sozinhos. Uma porcentagem só diz algo quando se sabe de que total ela fala, em que "
            "ano foi medida e por quem. Refaça as contas simples; é um bom jeito de aprender.",
        ),
        (
            "mãos trabalhando",
            f"Agora, pratique. Procure um exemplo pequeno de {TOPIC} no seu dia a dia e acompanhe do começo ao fim. "
            "Um exemplo vivido por inteiro ensina mais do que muitas definições.",
        ),
        (
            "conversa entre amigos",
            "Explique o que aprendeu a outra pessoa, sem usar termos difíceis. Onde a explicação travar, está a parte "
            "que merece uma segunda leitura. Ensinar é a prova mais honesta do que se sabe.",
        ),
        (
            "folhas amassadas",
            "Erre cedo e sem medo. Escreva o que você acha antes de conferir a resposta. Um engano descoberto assim "
            "fica na memória, e a correção vem junto com ele.",
        ),
        (
            "calendário na parede",
            "Divida o estudo em dias. Vinte minutos por dia, com pausas, rendem mais do que uma tarde inteira de uma "
            "vez. O sono entre uma sessão e outra também trabalha a seu favor.",
        ),
        (
            "cartões de memória",
            "Volte ao que já leu. Reveja no dia seguinte, depois de uma semana e depois de um mês. Tente lembrar "
            "primeiro, e só então abra as notas: o esforço de lembrar é o que fixa.",
        ),
        (
            "lupa sobre documento",
            "Quando encontrar uma afirmação forte, procure a fonte original. Muitas frases famosas mudam um pouco a "
            "cada repetição. Ler o documento de partida leva poucos minutos e evita muitos mal-entendidos.",
        ),
        (
            "trilha na floresta",
            "Não tente ver tudo de uma vez. Siga uma trilha principal e marque os desvios para outro dia. Quem sabe o "
            "que deixou de fora conhece melhor o próprio caminho.",
        ),
        (
            "professora em sala",
            "Se puder, converse com quem trabalha na área. Leve perguntas curtas e concretas. Uma resposta de cinco "
            "minutos, de quem já passou pelas dificuldades, pode poupar semanas de tentativa.",
        ),
        (
            "lanterna no escuro",
            "Saiba dizer o que ainda não se sabe. Em todo campo há perguntas abertas, e reconhecê-las é um sinal de "
            "boa compreensão. Cuidado com quem tem certeza de tudo.",
        ),
        (
            "jornal dobrado",
            f"Acompanhe as novidades sobre {TOPIC} com calma. Uma notícia recente pode mudar em poucos dias. Espere "
            "que outras pessoas confirmem antes de trocar o que você já aprendeu.",
        ),
        (
            "caixa de ferramentas",
            "Guarde uma pequena caixa de ferramentas: um resumo de uma página, uma lista de termos, três exemplos e "
            "duas fontes. Com isso à mão, você retoma o assunto em qualquer momento.",
        ),
        (
            "ponte sobre rio",
            "Ligue o tema novo a algo que você já conhece. A memória guarda melhor o que tem companhia. Pergunte: com "
            "o que isto se parece, e em que é diferente?",
        ),
        (
            "bússola na mão",
            "Por último, confira o rumo. Releia a pergunta do início e veja se já consegue respondê-la em voz alta, "
            "em um minuto. Se consegue, escolha a próxima pergunta.",
        ),
        (
            "três perguntas anotadas",
            "Uma dica curta: anote três perguntas antes de ler e volte a elas no fim.",
        ),
    ),
    closing=Scene(
        visual="pessoa lendo",
        text="Confira as fontes na descrição, tire as suas próprias conclusões e até a próxima.",
    ),
    closing_without_sources=Scene(
        visual="pessoa lendo",
        text="Procure boas fontes, compare o que elas dizem, tire as suas próprias conclusões e até a próxima.",
    ),
    answer="Na revisão, pediram",
    unanswered="Este texto pronto ainda não tem um fato guardado sobre isso. O ponto fica marcado para ser completado.",
    summary=f"Um primeiro olhar sobre {TOPIC}.",
    sources="Fontes:",
    offline="Material offline: roteiro montado com textos prontos e fatos guardados, sem modelo de linguagem e sem "
    "pesquisa na internet.",
    tags=("primeiros passos", "como estudar", "material offline"),
    hooks=("COMECE AQUI", "O ESSENCIAL", "PRIMEIROS PASSOS", "ENTENDA AGORA"),
)

_ENGLISH = Book(
    title=f"{TOPIC}: first steps",
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
            f"First of all, ask one simple question: what do I want to know about {TOPIC}? A good question fits in "
            "one sentence. It shows you where to begin, and also when it is time to stop.",
        ),
        (
            "shelf of books",
            "Then choose two or three sources you can trust. Prefer people who sign what they write, who say where "
            "each figure comes from, and who correct their own mistakes. One plain book often beats ten short clips.",
        ),
        (
            "mind map",
            "Draw a map on a sheet of paper. Put the subject in the middle. Around it, write its parts and the arrows "
            "that join them. Whatever has no arrow is what you have not understood yet.",
        ),
        (
            "dictionary pages",
            "Every subject has words of its own. Write down the ones that keep coming back and look up each of them. "
            "With twenty words well understood, almost any text in the field feels lighter.",
        ),
        (
            "old clock",
            "Look at the past as well. When you know how an idea was born, and which problem it came to solve, you "
            "remember it better. History puts order into what looked like a list of names.",
        ),
        (
            "balance scale",
            "Compare at least two opinions. Where they agree, the ground is firm. Where they differ, ask at which "
            "point they part: in the facts, in the sums, or in what each side cares about.",
        ),
        (
            "calculator and paper",
            "Be careful with lonely numbers. A percentage only means something if you know what it is a share of, in "
            "which year it was measured, and by whom. Do the simple sums again; it is a good way to learn.",
        ),
        (
            "hands at work",
            f"Now practise. Find one small example of {TOPIC} in your daily life and follow it from start to end. An "
            "example that you have lived through teaches more than many definitions.",
        ),
        (
            "friends talking",
            "Explain what you have learned to someone else, without hard words. The place where you get stuck is the "
            "part that deserves a second reading. Teaching is the most honest test of what you know.",
        ),
        (
            "crumpled paper",
            "Make mistakes early and without fear. Write down what you think before you check the answer. A mistake "
            "found this way stays in memory, and the right answer stays with it.",
        ),
        (
            "wall calendar",
            "Spread your study over days. Twenty minutes a day, with breaks, give more than one whole afternoon. The "
            "sleep between two sessions works for you too.",
        ),
        (
            "flash cards",
            "Return to what you have read. Look again the next day, then after a week, then after a month. Try to "
            "remember first, and only then open your notes: the effort is what makes it last.",
        ),
        (
            "magnifying glass",
            "When you meet a strong claim, look for the original source. Many famous sentences change a little each "
            "time they are repeated. Reading the first document takes minutes and prevents many mistakes.",
        ),
        (
            "forest trail",
            "Do not try to see everything at once. Follow one main path and mark the side roads for another day. "
            "People who know what they left out know their own way better.",
        ),
        (
            "teacher in classroom",
            "If you can, talk to someone who works in the field. Bring short and concrete questions. Five minutes "
            "with a person who has met the hard parts can save you weeks.",
        ),
        (
            "flashlight in dark",
            "Learn to say what is not known yet. Every field has open questions, and to recognise them is a sign of "
            "good understanding. Be careful with people who are certain of everything.",
        ),
        (
            "folded newspaper",
            f"Follow the news about {TOPIC} calmly. A fresh story may change within days. Wait until other people "
            "have confirmed it before you trade in what you have learned.",
        ),
        (
            "tool box",
            "Keep a small box of tools: a summary of one page, a list of terms, three examples and two sources. With "
            "these at hand you can pick the subject up again at any time.",
        ),
        (
            "bridge over river",
            "Tie the new subject to something you already know. Memory keeps best what has company. Ask yourself: "
            "what is this like, and how is it different?",
        ),
        (
            "compass in hand",
            "Finally, check your course. Read your first question again and see if you can answer it aloud, in one "
            "minute. If you can, choose the next question.",
        ),
        (
            "three written questions",
            "A short tip: write down three questions before you read, and return to them at the end.",
        ),
    ),
    closing=Scene(
        visual="person reading",
        text="Check the sources in the description, draw your own conclusions, and see you next time.",
    ),
    closing_without_sources=Scene(
        visual="person reading",
        text="Look for good sources, compare what they say, draw your own conclusions, and see you next time.",
    ),
    answer="The review asked",
    unanswered="This ready-made text has no stored fact about that yet. The point stays marked, to be completed.",
    summary=f"A first look at {TOPIC}.",
    sources="Sources:",
    offline="Offline material: a script put together from ready-made text and stored facts, without a language model "
    "and without a search of the internet.",
    tags=("first steps", "how to study", "offline material"),
    hooks=("START HERE", "THE ESSENTIALS", "FIRST STEPS", "IN SHORT"),
)

BOOKS: dict[Language, Book] = {"pt-BR": _PORTUGUESE, "en": _ENGLISH}
