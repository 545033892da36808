"""File formats: arrays, images, packed stores, CSV columns, and atomic writes."""
