"""A batch as a court's clerk would send it: Portuguese papers as separate PDFs, with bad ones among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from random import Random
from textwrap import wrap

from tests.apps.classifier.documents import corrupt_pdfs, hanging_pdf, memory_exhausting_pdf, pdf, zipped

KINDS = ("petição inicial", "sentença", "contestação", "ofício", "recurso", "procuração")
_WIDTH = 70  # characters that fit on a line of a page


@dataclass(frozen=True)
class Paper:
    """`label` is the kind of a good paper; `codes` are the possible errors of a bad one, which may crash its reader."""

    name: str
    data: bytes
    label: str = ""
    codes: frozenset[str] = frozenset()


def papers(count: int, *, seed: int = 0) -> Iterator[Paper]:
    """Yield good papers of all kinds in turn, all different, the same for the same seed."""
    return (paper(number, seed=seed) for number in range(count))


def paper(number: int, *, seed: int = 0) -> Paper:
    label = KINDS[number % len(KINDS)]
    lines = [part for line in lines_of(label, number, seed=seed) for part in wrap(line, _WIDTH)]
    return Paper(f"{number:04} {label}.pdf", pdf([lines]), label)


def batch(good: int, *, corrupt: int = 0, crashing: int = 0, hanging: int = 0, seed: int = 0) -> list[Paper]:
    """Return good and bad papers in an order chosen by the seed."""
    made = [
        *papers(good, seed=seed),
        *(_damaged(number) for number in range(corrupt)),
        *(_crashing(number) for number in range(crashing)),
        *(_hanging(number) for number in range(hanging)),
    ]
    Random(seed).shuffle(made)
    return made


def lines_of(label: str, number: int, *, seed: int = 0) -> list[str]:
    """Return the lines of a paper."""
    random = Random(f"{seed}:{label}:{number}")
    facts = _facts(number, random)
    body = random.sample(_SENTENCES[label], len(_SENTENCES[label]) - 1)
    return [line.format(**facts) for line in (*_HEADS[label], *body, *random.sample(_ANYWHERE, 3), *_FEET[label])]


def _facts(number: int, random: Random) -> dict[str, str]:
    author, defendant = random.sample(_NAMES, 2)
    year = random.randint(2009, 2026)
    return {
        "case": f"{number:07}-{random.randint(10, 99)}.{year}.8.12.{random.randint(1, 54):04}",
        "author": f"{author} {random.choice(_SURNAMES)}",
        "defendant": f"{defendant} {random.choice(_SURNAMES)}",
        "lawyer": f"{random.choice(_NAMES)} {random.choice(_SURNAMES)}",
        "oab": f"OAB/MS {random.randint(1_000, 29_999)}",
        "city": random.choice(_CITIES),
        "date": f"{random.randint(1, 28)} de {random.choice(_MONTHS)} de {year}",
        "money": f"R$ {random.randint(1, 999)}.{random.randint(0, 999):03},{random.randint(0, 99):02}",
        "days": str(random.choice((5, 10, 15, 30))),
        "sheet": str(random.randint(2, 480)),
        "number": str(number),
    }


def _damaged(number: int) -> Paper:
    """All are different, since equal content is one document."""
    kind = list(_DAMAGED)[number % len(_DAMAGED)]
    code, make = _DAMAGED[kind]
    return Paper(f"{kind} {number}.pdf", make(number), codes=frozenset({code}))


def _crashing(number: int) -> Paper:
    return Paper(f"devorador {number}.pdf", _marked(_hungry(), number), codes=frozenset({"CRASHED", "OUT_OF_MEMORY"}))


def _hanging(number: int) -> Paper:
    """Runs so long that killed workers may hold it; the third worker death quarantines it."""
    codes = frozenset({"CPU_LIMIT", "TIMEOUT", "QUARANTINED"})
    return Paper(f"sem fim {number}.pdf", _marked(_endless(), number), codes=codes)


def _marked(data: bytes, number: int) -> bytes:
    """Change the hash but not the content: a comment may follow the end of a PDF."""
    return data + f"%{number}\n".encode()


@cache
def _hungry() -> bytes:
    return memory_exhausting_pdf()


@cache
def _endless() -> bytes:
    return hanging_pdf()


_DAMAGED: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "cortado": ("FILE_DAMAGED", lambda number: _marked(paper(number).data[:300], number)),
    "ruído": ("FILE_DAMAGED", lambda number: b"%PDF-1.7\n" + Random(number).randbytes(2_000)),
    "trancado": ("FILE_ENCRYPTED", lambda number: pdf([[f"segredo {number}"]], password=f"senha {number}")),
    "vazio": ("FILE_EMPTY", lambda number: b"\n" * number),
    "bomba": ("FILE_TOO_LARGE", lambda number: zipped({"word/document.xml": b" " * (20_000_000 + number)})),
    "sem catálogo": ("FILE_DAMAGED", lambda number: _marked(corrupt_pdfs()["no catalogue"], number)),
}

_NAMES = (
    *("João", "Maria", "Antônio", "Luísa", "Inês", "Estêvão", "Conceição", "Sebastião"),
    *("Ângela", "Otávio", "Márcia", "Régis", "Vitória", "Cícero", "Lúcia", "Fabrício"),
)
_SURNAMES = (
    *("Assunção", "Peçanha", "Guimarães", "Brandão", "Araújo", "Magalhães", "Gonçalves"),
    *("Corrêa", "Simões", "Falcão", "Leitão", "Muniz", "Torres", "Sant'Ana"),
)
_CITIES = ("Campo Grande", "Dourados", "Três Lagoas", "Corumbá", "Ponta Porã", "Naviraí", "Aquidauana", "Paranaíba")
_MONTHS = (
    *("janeiro", "fevereiro", "março", "abril", "maio", "junho"),
    *("julho", "agosto", "setembro", "outubro", "novembro", "dezembro"),
)

_HEADS = {
    "petição inicial": (
        "EXCELENTÍSSIMO SENHOR DOUTOR JUIZ DE DIREITO DA VARA CÍVEL DA COMARCA DE {city}",
        "{author}, brasileiro, por seu advogado {lawyer} ({oab}), vem propor AÇÃO DE COBRANÇA em face de {defendant}.",
    ),
    "sentença": (
        "PODER JUDICIÁRIO. COMARCA DE {city}. AUTOS Nº {case}",
        "SENTENÇA. Vistos etc. {author} ajuizou ação contra {defendant}. É o relatório. Fundamento e decido.",
    ),
    "contestação": (
        "AUTOS Nº {case}. RÉU: {defendant}",
        "{defendant}, já qualificado, vem tempestivamente apresentar CONTESTAÇÃO à ação que lhe move {author}.",
    ),
    "ofício": (
        "OFÍCIO Nº {number}/GAB. {city}, {date}",
        "A Sua Senhoria o Senhor {defendant}, Diretor do Departamento. Assunto: prestação de informações.",
    ),
    "recurso": (
        "EGRÉGIO TRIBUNAL DE JUSTIÇA. COLENDA CÂMARA CÍVEL. APELAÇÃO NOS AUTOS Nº {case}",
        "{author}, inconformado com a sentença de fls. {sheet}, interpõe RECURSO DE APELAÇÃO contra {defendant}.",
    ),
    "procuração": (
        "PROCURAÇÃO AD JUDICIA ET EXTRA",
        "OUTORGANTE: {author}, residente em {city}. OUTORGADO: {lawyer}, inscrito na {oab}.",
    ),
}
_SENTENCES = {
    "petição inicial": (
        "DOS FATOS: em {date} o autor emprestou ao réu a quantia de {money}, que nunca lhe foi devolvida.",
        "DO DIREITO: a pretensão do autor encontra amparo no Código Civil.",
        "DOS PEDIDOS: requer a citação do réu e a total procedência da ação.",
        "Requer os benefícios da justiça gratuita e a produção de todas as provas.",
        "Dá-se à causa o valor de {money}.",
    ),
    "sentença": (
        "Ante o exposto, JULGO PROCEDENTE o pedido, com resolução do mérito.",
        "Condeno {defendant} ao pagamento de {money}, corrigidos desde {date}.",
        "Custas pelo vencido, e honorários fixados em dez por cento da condenação.",
        "As provas produzidas nas fls. {sheet} demonstram o inadimplemento.",
        "Publique-se. Registre-se. Intimem-se. Com o trânsito em julgado, arquivem-se.",
    ),
    "contestação": (
        "PRELIMINARMENTE, argui o réu a inépcia da inicial e a ilegitimidade passiva.",
        "NO MÉRITO, impugna especificamente o valor de {money} que lhe é cobrado.",
        "Os documentos de fls. {sheet} não provam o alegado pelo autor.",
        "Requer sejam julgados improcedentes os pedidos, condenado o autor nas verbas de sucumbência.",
        "A dívida, se existiu, foi paga em {date}, conforme o recibo anexo.",
    ),
    "ofício": (
        "Solicito a Vossa Senhoria que preste informações sobre o expediente de {author}.",
        "Encaminho, em anexo, cópia do memorando de {date}, para conhecimento e providências.",
        "A resposta deverá ser remetida a este gabinete no prazo de {days} dias.",
        "Reitero os termos do expediente anterior, até agora sem manifestação desse órgão.",
        "Coloco-me à disposição para os esclarecimentos que se fizerem necessários.",
    ),
    "recurso": (
        "DAS RAZÕES: a respeitável decisão recorrida merece reforma, porque contrária à prova dos autos.",
        "O preparo foi recolhido em {date}, e o recurso é tempestivo e cabível.",
        "O juízo a quo deixou de apreciar os documentos de fls. {sheet}.",
        "Requer o conhecimento e o provimento da apelação, para afastar a condenação de {money}.",
        "Prequestiona, desde já, os dispositivos de lei federal invocados pelo apelante.",
    ),
    "procuração": (
        "PODERES: os da cláusula ad judicia, para o foro em geral, em qualquer instância ou tribunal.",
        "Poderes especiais para transigir, desistir, firmar compromisso, receber e dar quitação.",
        "O outorgado poderá substabelecer esta a outrem, com ou sem reserva de iguais poderes.",
        "O presente mandato é válido por prazo indeterminado, a contar de {date}.",
        "O outorgante nomeia e constitui o outorgado seu bastante procurador.",
    ),
}
_ANYWHERE = (
    "Interessado: {author}.",
    "Processo de referência: {case}.",
    "Comarca de {city}, Estado de Mato Grosso do Sul.",
    "Documento juntado em {date}, fls. {sheet}.",
    "Conferido com o original.",
)
_FEET = {
    "petição inicial": ("Nestes termos, pede deferimento. {city}, {date}.", "{lawyer}, advogado, {oab}."),
    "sentença": ("{city}, {date}.", "{lawyer}, Juiz de Direito."),
    "contestação": ("Termos em que pede deferimento. {city}, {date}.", "{lawyer}, {oab}."),
    "ofício": ("Atenciosamente,", "{lawyer}, Chefe de Gabinete."),
    "recurso": ("Termos em que espera provimento. {city}, {date}.", "{lawyer}, {oab}."),
    "procuração": ("{city}, {date}.", "{author}, outorgante. Firma reconhecida."),
}
