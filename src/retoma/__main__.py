from retoma.cli import main

main()
