"""The page of the classifier, `/classificador/`: projects, uploads, and executions that are followed live."""
