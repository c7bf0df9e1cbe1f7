package listen

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"go.uber.org/zap"

	"adbuffer/internal/configfile"
)

// maxUnixPath is what fits into the kernel's sun_path, its last byte being zero.
const maxUnixPath = 107

// bindUnix binds a name of its own beside the path, and renames it to the path:
// that has its mode from the first moment on, and a socket that is there is
// replaced in one step. One that is served is replaced only with ReusePort; what
// is no socket, never.
func bindUnix(o Options, log *zap.Logger) (*Listener, error) {
	if err := checkPath(o, log); err != nil {
		return nil, err
	}
	dir := filepath.Dir(o.Address)
	own := filepath.Join(dir, "."+strconv.FormatInt(int64(os.Getpid()), 36)+o.Name[:1])
	if len(own) > maxUnixPath {
		return nil, fmt.Errorf("the folder's name is too long by %d bytes for a second name beside the path", len(own)-maxUnixPath)
	}
	os.Remove(own) //nolint:errcheck // of a process with this id that was killed; what else is there, bind says
	// Nobody may connect between bind and chmod.
	old := syscall.Umask(0o177)
	u, err := net.ListenUnix("unix", &net.UnixAddr{Name: own, Net: "unix"})
	syscall.Umask(old)
	if err != nil {
		return nil, explainPath(err, dir)
	}
	u.SetUnlinkOnClose(false) // see socketFile
	err = os.Chmod(own, o.Mode)
	if err != nil {
		err = fmt.Errorf("server.socket_mode: %w", err)
	} else {
		err = os.Rename(own, o.Address)
	}
	if err != nil {
		os.Remove(own) //nolint:errcheck // the error above matters
		u.Close()      //nolint:errcheck // as above
		return nil, err
	}
	return newUnix(o, u), nil
}

// newUnix returns the listener of a socket that lies at o.Address.
func newUnix(o Options, u socket) *Listener {
	l := &Listener{options: o, socket: u, addr: &net.UnixAddr{Name: o.Address, Net: "unix"}}
	if info, err := os.Lstat(o.Address); err == nil {
		l.file = &socketFile{o.Address, configfile.FileIDOf(info)}
	}
	return l
}

// checkPath looks at what lies at the path.
func checkPath(o Options, log *zap.Logger) error {
	info, err := os.Lstat(o.Address)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return explainPath(err, filepath.Dir(o.Address))
	case info.Mode()&os.ModeSocket == 0:
		return errors.New("a file that is no socket is in the way")
	}
	c, err := net.DialTimeout("unix", o.Address, time.Second)
	switch {
	case err == nil:
		c.Close() //nolint:errcheck // it was opened only to see
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, os.ErrNotExist):
		return nil // left behind by a process that was killed, or gone by now
	case errors.Is(err, syscall.EAGAIN): // its queue is full
	default:
		return explainPath(err, filepath.Dir(o.Address))
	}
	if !o.ReusePort {
		return errors.New("another process serves this socket; one adbuffer takes over from another if both have server.reuse_port")
	}
	log.Warn("the path is taken away from the process that serves it", zap.String("path", o.Address))
	return nil
}

// explainPath says which folder cannot be used, and why.
func explainPath(err error, dir string) error {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("the folder %s does not exist", dir)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("permission denied: user %d may not create files in %s", os.Geteuid(), dir)
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s is no folder", dir)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%s is on a file system that is read-only", dir)
	}
	return err
}

// socketFile is the file of a unix socket.
type socketFile struct {
	path string
	id   configfile.FileID
}

// remove removes it, unless another process has put its own in its place.
func (f *socketFile) remove() {
	if info, err := os.Lstat(f.path); err == nil && configfile.FileIDOf(info) == f.id {
		os.Remove(f.path) //nolint:errcheck // what is left is replaced by the next process
	}
}
