"""Back up an installation, restore it elsewhere, and move an embedded database to another server."""

from retoma.backups.archive import BackupArchive, open_archive
from retoma.backups.create import CopyFiles, Estimate, Report, create_backup, estimate_size
from retoma.backups.manifest import Manifest
from retoma.backups.move import move_database
from retoma.backups.restore import RestoredBackup, restore_backup
from retoma.backups.verify import verify_backup

__all__ = [
    "BackupArchive",
    "CopyFiles",
    "Estimate",
    "Manifest",
    "Report",
    "RestoredBackup",
    "create_backup",
    "estimate_size",
    "move_database",
    "open_archive",
    "restore_backup",
    "verify_backup",
]
