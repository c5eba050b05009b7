"""The kilobyte that is passed from step to step, the same for everybody. Peers use it: only the standard library."""

from random import Random
from string import ascii_letters

PAYLOAD = "".join(Random(0).choices(ascii_letters, k=1_000))  # so that no compression flatters
