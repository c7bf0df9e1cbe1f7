package configfile

import (
	"io/fs"
	"syscall"
)

// FileID tells files apart, whatever their names.
type FileID struct{ Device, Inode uint64 }

// FileIDOf returns the zero FileID where the system has none.
func FileIDOf(info fs.FileInfo) FileID {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return FileID{}
	}
	return FileID{uint64(s.Dev), s.Ino} //nolint:unconvert // Dev is int32 on some systems
}
