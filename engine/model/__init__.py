"""Real models under the engine. Importing this package is light: only the modules that run a model import torch."""
