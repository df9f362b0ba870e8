// Nothing to call: whoever links TestWidth has its effect.
