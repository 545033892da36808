"""The paper's synthetic benchmark, and generators of small datasets in the real formats."""

import cv2

cv2.setNumThreads(0)  # as in datasets/io/images.py
