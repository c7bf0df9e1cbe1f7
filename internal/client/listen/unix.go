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

	"adbuffer/internal/machine/configfile"
)

// maxUnixPath is the longest path for the kernel's sun_path, without its zero byte.
const maxUnixPath = 107

// bindUnix binds a temporary path in the same folder, and renames it to the path. So the socket has its mode from the
// start, and an old socket is replaced in one step. A socket that a process serves is replaced only with ReusePort. A
// file that is not a socket is never replaced.
func bindUnix(o Options, log *zap.Logger) (*Listener, error) {
	if err := checkPath(o, log); err != nil {
		return nil, err
	}
	dir := filepath.Dir(o.Address)
	temporary := filepath.Join(dir, "."+strconv.FormatInt(int64(os.Getpid()), 36)+o.Name[:1])
	if len(temporary) > maxUnixPath {
		return nil, fmt.Errorf("the path of the socket's folder is %d bytes too long for the temporary path that adbuffer binds in it", len(temporary)-maxUnixPath)
	}
	os.Remove(temporary)
	// No process may connect between bind and chmod.
	old := syscall.Umask(0o177)
	u, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	syscall.Umask(old)
	if err != nil {
		return nil, explainFolder(err, dir)
	}
	u.SetUnlinkOnClose(false) // see socketFile
	err = os.Chmod(temporary, o.Mode)
	if err != nil {
		err = fmt.Errorf("server.socket_mode: %w", err)
	} else {
		err = os.Rename(temporary, o.Address)
	}
	if err != nil {
		os.Remove(temporary)
		u.Close()
		return nil, err
	}
	return newUnix(o, u), nil
}

// newUnix returns the listener of a socket at the path o.Address.
func newUnix(o Options, u listenSocket) *Listener {
	l := &Listener{options: o, socket: u, addr: &net.UnixAddr{Name: o.Address, Net: "unix"}}
	if info, err := os.Lstat(o.Address); err == nil {
		l.file = &socketFile{o.Address, configfile.FileIDOf(info)}
	}
	return l
}

// checkPath returns an error if the path cannot be used for a socket.
func checkPath(o Options, log *zap.Logger) error {
	info, err := os.Lstat(o.Address)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return explainFolder(err, filepath.Dir(o.Address))
	case info.Mode()&os.ModeSocket == 0:
		return errors.New("the path is a file that is not a socket")
	}
	c, err := net.DialTimeout("unix", o.Address, time.Second)
	switch {
	case err == nil:
		c.Close()
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, os.ErrNotExist):
		return nil // the socket was left behind by a killed process, or has just been removed
	case errors.Is(err, syscall.EAGAIN): // a process serves the socket, but its queue is full
	default:
		return explainFolder(err, filepath.Dir(o.Address))
	}
	if !o.ReusePort {
		return errors.New("another process serves this socket; one adbuffer takes over from another if both have server.reuse_port")
	}
	log.Warn("the path is taken over from the process that serves it", zap.String("path", o.Address))
	return nil
}

// explainFolder returns an error that names the folder that cannot be used, and the reason.
func explainFolder(err error, dir string) error {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("the folder %s does not exist", dir)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("permission denied: user %d may not create files in %s", os.Geteuid(), dir)
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s is not a folder", dir)
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

// remove removes the file, unless another process has replaced it.
func (f *socketFile) remove() {
	if info, err := os.Lstat(f.path); err == nil && configfile.FileIDOf(info) == f.id {
		os.Remove(f.path)
	}
}
