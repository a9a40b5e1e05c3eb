"""A `torch.compile` backend named ``neuron`` that does on a CPU what TorchNeuron does on Trainium, as far as caching sees it.

Importing `neuron_emulator.backend` gives the backend's function; with this package's folder on the path, Dynamo finds the name
by itself. Tests use it; it computes slowly, compiles slowly, and is no substitute for the device.
"""
