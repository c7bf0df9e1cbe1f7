package listen

import (
	"io/fs"
	"syscall"
)

// fileID is which file this is, whatever its name.
type fileID struct{ device, inode uint64 }

func idOf(info fs.FileInfo) fileID {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}
	}
	return fileID{uint64(s.Dev), s.Ino} //nolint:unconvert // Dev is int32 on some systems
}
