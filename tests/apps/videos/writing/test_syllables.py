"""Syllables by spelling rules."""

from __future__ import annotations

import pytest

from retoma_apps.videos.steps.writing.syllables import count_syllables

PORTUGUESE = """
ra/i/nha ju/iz a/in/da ru/im ra/iz sa/ir sa/ú/de pa/ís sa/í/da mo/i/nho vi/ú/va e/go/ís/ta tri/un/fo con/tri/bu/in/te
his/tó/ria á/gua á/rea ó/leo di/á/rio ci/ên/cia sé/rie tê/nue má/goa con/tí/nuo no/tí/cias
di/a ti/o ru/a pi/a/no vi/a/gem so/ci/al cri/an/ça po/e/ta te/a/tro co/e/lho vo/o le/em ca/os re/in/ven/tar
pão mãe põe re/gi/ão a/vi/ões co/ra/ções
mui/to cui/da/do ins/ti/tui/ção cons/tru/ir viu pai/nel rei/no Eu/ro/pa cau/sa he/rói céu cha/péu
prai/a i/dei/a mai/or goi/a/ba
quem guer/ra a/quá/rio qua/dro U/ru/guai sa/guão lin/gui/ça quais/quer
ao pneu rit/mo ca/fé ren/da in/ves/ti/men/to fo/tos/sín/te/se pa/ra/béns sa/bi/á
"""
ENGLISH = """
cat:1 make:1 table:2 people:2 water:2 science:2 nation:2 special:2 idea:3 radio:3 created:3 walked:1 wanted:2 boxes:2
times:1 photosynthesis:5 energy:3 coffee:2 being:2 area:3 quiet:2 question:2 million:2 various:3 eye:1 the:1 video:3
actual:3 society:4 animal:3 year:1 you:1 young:1 little:2 oxygen:3 ancient:2 experience:4 leaves:1 studying:3 watched:1
"""


@pytest.mark.parametrize("divided", PORTUGUESE.split())
def test_portuguese_words_have_the_syllables_of_a_dictionary(divided: str) -> None:
    assert count_syllables(divided.replace("/", ""), "pt-BR") == len(divided.split("/"))


@pytest.mark.parametrize("counted", ENGLISH.split())
def test_english_words_have_the_syllables_of_a_dictionary(counted: str) -> None:
    word, count = counted.split(":")
    assert count_syllables(word, "en") == int(count)


def test_joined_words_decomposed_accents_and_digits_are_counted() -> None:
    assert count_syllables("guarda-chuva", "pt-BR") == 4
    assert count_syllables("sau\u0301de", "pt-BR") == 3
    assert count_syllables("2026", "pt-BR") == 8
    assert count_syllables("CDB", "pt-BR") == count_syllables("…", "en") == 1
