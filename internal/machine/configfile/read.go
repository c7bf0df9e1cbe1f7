// Package configfile reads, checks and watches the files that an operator gives
// adbuffer: the configuration, and the certificates, keys, authorities and tokens
// that it names.
package configfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"
)

// Error is an error of a file. Its text names the file.
type Error struct {
	// Key is the last word of the setting that names the file, such as "cert_file";
	// "" if the caller knows it.
	Key  string
	File string
	Rule string // the rule that the file breaks, such as "must be a regular file"

	cause error // of the file system, nil for none
}

// Unwrap returns the error of the file system, or nil.
func (e *Error) Unwrap() error { return e.cause }

// Error is one line: file and rule.
func (e *Error) Error() string { return e.File + ": " + e.Rule }

// Read returns the content of a regular file of at most limit bytes. It never waits for a writer, and
// waits at most patience for the file system. It opens no other kind of file: a device could do
// anything. The error is an *Error.
func Read(name string, limit int64) ([]byte, error) {
	data, err := ReadStart(name, limit+1)
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, &Error{File: name, Rule: fmt.Sprintf("must not be larger than %d bytes", limit)}
	}
	return data, nil
}

// ReadStart is Read for the first n bytes of a file of any size.
func ReadStart(name string, n int64) ([]byte, error) {
	return within(name, func() ([]byte, error) { return readStart(name, n) })
}

// Stat is os.Stat, but it waits at most patience for the file system.
func Stat(name string) (fs.FileInfo, error) {
	return within(name, func() (fs.FileInfo, error) { return os.Stat(name) })
}

// patience is how long a call may wait for a file system. If the server of a network file system is
// gone, no call returns, not even Stat.
const patience = 5 * time.Second

// hung has the names of the files whose file systems do not respond. Each blocked call needs a thread, so
// there is no other call for such a file before the first one has returned.
var hung sync.Map

// within returns the result of call, which uses the file called name, or an *Error after patience.
func within[T any](name string, call func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	if _, still := hung.Load(name); !still {
		done := make(chan result, 1)
		go func() {
			v, err := call()
			done <- result{v, err}
		}()
		select {
		case r := <-done:
			return r.value, r.err
		case <-time.After(patience):
			hung.Store(name, nil)
			go func() {
				<-done
				hung.Delete(name)
			}()
		}
	}
	var none T
	return none, &Error{File: name, Rule: fmt.Sprintf("cannot be read: its file system has not responded for %v", patience)}
}

func readStart(name string, n int64) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, unreadable(name, err)
	}
	if !info.Mode().IsRegular() {
		return nil, &Error{File: name, Rule: "must be a regular file"}
	}
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be a pipe by now
	if err != nil {
		return nil, unreadable(name, err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(unwaiting{file}, n))
	if errors.Is(err, syscall.EAGAIN) {
		return nil, &Error{File: name, Rule: "must be a file that is read without waiting", cause: err}
	}
	if err != nil {
		return nil, unreadable(name, err)
	}
	return data, nil
}

// unwaiting reads a file that was opened with O_NONBLOCK. Where a read would wait, it returns EAGAIN:
// Linux has files that count as regular and never end, such as /proc/kmsg.
type unwaiting struct{ file *os.File }

func (u unwaiting) Read(p []byte) (n int, err error) {
	conn, err := u.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = conn.Read(func(fd uintptr) bool {
		n, failed = syscall.Read(int(fd), p)
		return true // os.File.Read would wait after EAGAIN
	})
	switch {
	case err != nil:
		return 0, err
	case failed == syscall.EINTR:
		return 0, nil // ReadAll calls again
	case failed != nil:
		return 0, failed
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// unreadable wraps an error of the file system, so that the file's name is in it once.
func unreadable(name string, err error) error {
	if at := new(fs.PathError); errors.As(err, &at) {
		err = at.Err
	}
	return &Error{File: name, Rule: "cannot be read: " + err.Error(), cause: err}
}
