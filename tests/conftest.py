"""Laws are tried on the same examples everywhere, and however slow the machine."""

from hypothesis import settings

settings.register_profile("laws", deadline=None, derandomize=True)
settings.load_profile("laws")
