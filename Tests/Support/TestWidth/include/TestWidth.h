// Nothing to call: linking TestWidth is enough.
