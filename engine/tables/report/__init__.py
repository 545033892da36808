"""Everything made from all of results/: the report page, README's summary, the forest plot."""
