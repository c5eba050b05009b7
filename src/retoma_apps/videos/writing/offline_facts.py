"""General facts about a few topics for the offline writer, each with its source and a picture."""

from __future__ import annotations

from dataclasses import dataclass

from retoma_apps.videos.models import Fact, Language, Source
from retoma_apps.videos.spoken_text import fold

_CONFIDENCE = 0.9
_SOURCE_SUFFIX: dict[Language, str] = {"pt-BR": "acervo offline", "en": "offline facts"}


@dataclass(frozen=True)
class FactSheet:
    """`keywords` are folded words, any of which selects the sheet; `facts` are pairs of a text and its picture."""

    language: Language
    keywords: tuple[str, ...]
    source: str
    url: str
    facts: tuple[tuple[str, str], ...]


_FACT_SHEETS = (
    FactSheet(
        "pt-BR",
        ("renda fixa", "tesouro direto", "cdb"),
        "Portal do Investidor (CVM)",
        "https://www.gov.br/investidor/pt-br",
        (
            (
                "Na renda fixa, você empresta dinheiro a um banco, a uma empresa ou ao governo, e conhece a regra dos "
                "juros no dia em que aplica.",
                "moedas empilhadas",
            ),
            (
                "Um título prefixado tem a taxa definida na compra; um pós-fixado acompanha um índice, como a taxa "
                "Selic ou a inflação.",
                "gráfico de juros",
            ),
            (
                "O Fundo Garantidor de Créditos cobre até 250 mil reais por pessoa e por instituição em produtos como "
                "CDB, LCI e poupança, dentro das regras do fundo.",
                "cofre de banco",
            ),
            (
                "Vender um título antes do vencimento pode dar lucro ou prejuízo, porque o preço dele muda todos os "
                "dias.",
                "tela de mercado",
            ),
            (
                "Uma taxa alta costuma vir com mais risco ou com um prazo maior para ter o dinheiro de volta.",
                "calendário e dinheiro",
            ),
        ),
    ),
    FactSheet(
        "pt-BR",
        ("fotossintese", "clorofila"),
        "Wikipédia: Fotossíntese",
        "https://pt.wikipedia.org/wiki/Fotoss%C3%ADntese",
        (
            (
                "Na fotossíntese, plantas, algas e algumas bactérias usam a luz para transformar água e gás carbônico "
                "em açúcar.",
                "folha ao sol",
            ),
            (
                "O oxigênio que sai das folhas vem da água que a planta absorve, e não do gás carbônico.",
                "gotas de água",
            ),
            (
                "A clorofila absorve bem a luz azul e a vermelha; a verde ela reflete mais, e por isso vemos as "
                "folhas verdes.",
                "folhas verdes",
            ),
            (
                "Nas plantas, tudo isso acontece dentro dos cloroplastos, que são pequenas partes das células.",
                "células no microscópio",
            ),
            (
                "Boa parte do oxigênio da Terra é produzida no mar, por seres tão pequenos que não os vemos.",
                "ondas do oceano",
            ),
        ),
    ),
    FactSheet(
        "pt-BR",
        ("cafe", "cafeteira", "cafeina"),
        "Wikipédia: Café",
        "https://pt.wikipedia.org/wiki/Caf%C3%A9",
        (
            (
                "O café é feito das sementes torradas do fruto do cafeeiro, uma planta que veio da África.",
                "grãos de café",
            ),
            (
                "As duas espécies mais cultivadas são a arábica, de sabor mais suave, e a robusta, que tem mais "
                "cafeína.",
                "frutos do cafeeiro",
            ),
            (
                "O Brasil é o maior produtor de café do mundo há mais de 150 anos.",
                "fazenda de café",
            ),
            (
                "A torra muda a cor e o aroma do grão: quanto mais escura, mais amargo fica o café.",
                "torra de grãos",
            ),
            (
                "Para coar o café, a água um pouco abaixo da fervura funciona bem.",
                "café coado",
            ),
        ),
    ),
    FactSheet(
        "en",
        ("fixed income", "bonds", "treasury"),
        "Investor.gov (SEC): Bonds",
        "https://www.investor.gov",
        (
            (
                "When you buy a bond, you lend money to a company or a government, which promises to pay it back with "
                "interest.",
                "stacked coins",
            ),
            (
                "When interest rates rise, the prices of older bonds usually fall, because new bonds pay more.",
                "interest rate chart",
            ),
            (
                "Selling a bond before it matures can bring a gain or a loss.",
                "market screen",
            ),
            (
                "A high rate often comes with more risk or a longer wait for your money.",
                "calendar and money",
            ),
        ),
    ),
    FactSheet(
        "en",
        ("photosynthesis", "chlorophyll"),
        "Wikipedia: Photosynthesis",
        "https://en.wikipedia.org/wiki/Photosynthesis",
        (
            (
                "In photosynthesis, plants, algae and some bacteria use light to turn water and carbon dioxide into "
                "sugar.",
                "leaf in sunlight",
            ),
            (
                "The oxygen that leaves give off comes from the water that the plant takes in, and not from carbon "
                "dioxide.",
                "water drops",
            ),
            (
                "Chlorophyll takes in blue and red light well; it reflects more of the green, which is why leaves "
                "look green.",
                "green leaves",
            ),
            (
                "In plants, all this happens inside chloroplasts, which are small parts of the cells.",
                "cells under microscope",
            ),
            (
                "A large part of the oxygen on Earth is made in the sea, by living things too small to see.",
                "ocean waves",
            ),
        ),
    ),
    FactSheet(
        "en",
        ("coffee", "caffeine", "espresso"),
        "Wikipedia: Coffee",
        "https://en.wikipedia.org/wiki/Coffee",
        (
            ("Coffee is made from the roasted seeds of a fruit whose plant comes from Africa.", "coffee beans"),
            (
                "The two kinds grown most are arabica, with a milder taste, and robusta, which has more caffeine.",
                "coffee cherries",
            ),
            ("Brazil has been the world's largest coffee grower for more than 150 years.", "coffee farm"),
            (
                "Roasting changes the colour and the smell of the bean: the darker the roast, the more bitter the cup.",
                "coffee roasting",
            ),
            ("Water that is just below boiling works well for filter coffee.", "filter coffee"),
        ),
    ),
)
_VISUALS = {fold(text): visual for sheet in _FACT_SHEETS for text, visual in sheet.facts}


def find_facts(topic: str, language: Language) -> list[Fact]:
    """Return facts about the topic; none for most topics: nothing is made up."""
    folded = f" {fold(topic)} "
    sheets = [
        sheet
        for sheet in _FACT_SHEETS
        if sheet.language == language and any(f" {keyword} " in folded for keyword in sheet.keywords)
    ]
    return [_fact(text, sheet) for sheet in sheets for text, _ in sheet.facts]


def find_visual(fact: Fact) -> str | None:
    return _VISUALS.get(fold(fact.text))


def _fact(text: str, sheet: FactSheet) -> Fact:
    name = f"{sheet.source} ({_SOURCE_SUFFIX[sheet.language]})"
    return Fact(text=text, source=Source(name=name, url=sheet.url, confidence=_CONFIDENCE, origin="offline_facts"))
