"""The functional core: plain classes and functions without threads, locks, clocks or I/O."""
