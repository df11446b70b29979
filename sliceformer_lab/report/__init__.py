"""From run folders to tables: which attention did what, and how sure that is."""
