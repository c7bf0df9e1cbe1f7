package configfile

import (
	"io/fs"
	"syscall"
)

// FileID identifies a file independently of its name.
type FileID struct{ Device, Inode uint64 }

// FileIDOf returns the file's id, or the zero FileID if info does not come from the operating system.
func FileIDOf(info fs.FileInfo) FileID {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return FileID{}
	}
	return FileID{uint64(s.Dev), s.Ino} //nolint:unconvert // Dev is int32 on some systems
}
