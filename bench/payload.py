"""The kilobyte that is passed from step to step, the same for all engines. Import only the standard library here."""

from random import Random
from string import ascii_letters

PAYLOAD = "".join(Random(0).choices(ascii_letters, k=1_000))  # random, so compression does not help
