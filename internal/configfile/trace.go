package configfile

import (
	"os"
	"path/filepath"
	"strings"
)

// maxLinks is how many symbolic links a path may lead through, as in Linux.
const maxLinks = 40

// trace walks the path of a file as the kernel does. It returns the directories
// in which a change could make the path lead elsewhere, or change the file: those
// that hold a symbolic link on the way, the file itself, or the first name that
// is not there. Every name on the way is added to names.
func trace(file string, names map[string]bool) (dirs []string) {
	if !filepath.IsAbs(file) {
		wd, err := os.Getwd()
		if err != nil {
			return nil // there is no working directory any more
		}
		file = wd + "/" + file // not joined: a ".." is for the kernel to follow
	}
	at, links := "/", 0
	rest := split(file)
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			at = filepath.Dir(at)
			continue
		}
		path := filepath.Join(at, name)
		names[path] = true
		info, err := os.Lstat(path)
		switch {
		case err != nil || len(rest) == 0 && info.Mode()&os.ModeSymlink == 0:
			return append(dirs, at)
		case info.Mode()&os.ModeSymlink == 0:
			at = path
			continue
		}
		dirs = append(dirs, at)
		target, err := os.Readlink(path)
		if links++; err != nil || links > maxLinks {
			return dirs
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(split(target), rest...)
	}
	return dirs
}

// split returns the names of a path. A ".." stays: where it leads depends on the
// links before it.
func split(path string) (names []string) {
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			names = append(names, name)
		}
	}
	return names
}
