"""Results as tables and plots, beside what was published."""
