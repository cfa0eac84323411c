"""Why a row was not run."""


class NotHere(Exception):
    """This machine cannot show the fault; the message says what it lacks."""


class NotBuilt(Exception):
    """The product has no such part yet; the message says which."""
