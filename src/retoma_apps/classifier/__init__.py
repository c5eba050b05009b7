"""The document classifier: batches of documents, labelled by a language model, that never get stuck unseen."""
