"""The pages of the classifier, `/classificador/`: projects, uploads and live executions."""
