"""Where a broker's settings come from, and what may be changed while it runs."""
