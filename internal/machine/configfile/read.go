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
	// Key is the last word of the setting that names the file, such as "cert_file"; "" if the error comes from a
	// function that does not know the setting.
	Key  string
	File string
	Rule string // the rule that the file breaks, such as "must be a regular file"

	cause error // the file system's error; nil = none
}

// Unwrap returns the error of the file system, or nil.
func (e *Error) Unwrap() error { return e.cause }

// Error is one line: file and rule.
func (e *Error) Error() string { return e.File + ": " + e.Rule }

// Read returns the content of a regular file of at most limit bytes. It never waits for a writer, and waits at most
// patience for the file system. It does not open a file of another kind, since opening a device may have effects. The
// error is an *Error.
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
	return callWithPatience(name, func() ([]byte, error) { return readStart(name, n) })
}

// Stat is os.Stat, but it waits at most patience for the file system.
func Stat(name string) (fs.FileInfo, error) {
	return callWithPatience(name, func() (fs.FileInfo, error) { return os.Stat(name) })
}

// patience is how long a call may wait for a file system. If the server of a network file system has disappeared,
// system calls never return, not even stat.
const patience = 5 * time.Second

// unresponsive holds the names of files whose file system has not responded within patience. Each blocked call
// occupies a thread, so no further call is made for such a file until the blocked call has returned.
var unresponsive sync.Map

// callWithPatience returns the result of call, which uses the file called name. If call has not returned after
// patience, it returns an *Error.
func callWithPatience[T any](name string, call func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	if _, hanging := unresponsive.Load(name); !hanging {
		done := make(chan result, 1)
		go func() {
			v, err := call()
			done <- result{v, err}
		}()
		select {
		case r := <-done:
			return r.value, r.err
		case <-time.After(patience):
			unresponsive.Store(name, nil)
			go func() {
				<-done
				unresponsive.Delete(name)
			}()
		}
	}
	var zero T
	return zero, &Error{File: name, Rule: fmt.Sprintf("cannot be read: its file system has not responded for %v", patience)}
}

func readStart(name string, n int64) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, unreadable(name, err)
	}
	if !info.Mode().IsRegular() {
		return nil, &Error{File: name, Rule: "must be a regular file"}
	}
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // O_NONBLOCK, since the file may have been replaced by a pipe after Stat
	if err != nil {
		return nil, unreadable(name, err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(nonblockingFile{file}, n))
	if errors.Is(err, syscall.EAGAIN) {
		return nil, &Error{File: name, Rule: "must be a file that is read without waiting", cause: err}
	}
	if err != nil {
		return nil, unreadable(name, err)
	}
	return data, nil
}

// nonblockingFile reads a file that was opened with O_NONBLOCK. A read that would wait returns EAGAIN; os.File
// would wait. Some regular files of Linux can keep a reader waiting for ever, such as /proc/kmsg.
type nonblockingFile struct{ file *os.File }

func (u nonblockingFile) Read(p []byte) (n int, err error) {
	conn, err := u.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = conn.Read(func(fd uintptr) bool {
		n, failed = syscall.Read(int(fd), p)
		return true // done, even after EAGAIN, for which os.File.Read would wait
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

// unreadable wraps an error of the file system. It removes the file's name from the error, since Error adds the name.
func unreadable(name string, err error) error {
	if pathError := new(fs.PathError); errors.As(err, &pathError) {
		err = pathError.Err
	}
	return &Error{File: name, Rule: "cannot be read: " + err.Error(), cause: err}
}
