package configfile

import (
	"os"
	"path/filepath"
	"strings"
)

// maxLinks is how many symbolic links a path may lead through, as in Linux.
const maxLinks = 40

// trace walks the path of a file as the kernel does. It returns the directories in which a
// change could change the file or lead the path elsewhere: directories that hold a
// symbolic link on the way, the file, or the first missing name. It adds every name on the
// way to names.
func trace(file string, names map[string]bool) (dirs []string) {
	if !filepath.IsAbs(file) {
		wd, err := os.Getwd()
		if err != nil {
			return nil // the working directory was removed
		}
		file = wd + "/" + file // not joined: the kernel follows ".." through links
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

// split returns the names of a path. It keeps "..", whose meaning depends on the links
// before it.
func split(path string) (names []string) {
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			names = append(names, name)
		}
	}
	return names
}
