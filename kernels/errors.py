"""`KernelError`: arguments that a kernel would turn into a wrong read or write, refused on the host before a launch."""


class KernelError(ValueError):
    """What is wrong with the arguments and what to do about it."""
