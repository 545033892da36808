"""The paper's synthetic benchmark."""
