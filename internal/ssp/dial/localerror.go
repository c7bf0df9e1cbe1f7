package dial

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"adbuffer/internal/wire/exchange"
)

// localError returns the error of a dial that failed with cause because this machine, or this
// process, has not enough of something. It returns nil if cause says something about the SSP.
func localError(what string, cause error) error {
	short := shortage(cause)
	if short == "" {
		return nil
	}
	return &exchange.Error{Outcome: exchange.LocalError, Progress: exchange.NotSent, Detail: what + ": " + short, Err: cause}
}

// shortage says what is too little, and what to change; "" if it is nothing on this machine.
func shortage(err error) string {
	dns, _ := errors.AsType[*net.DNSError](err)
	is := func(e syscall.Errno) bool {
		return errors.Is(err, e) || dns != nil && strings.HasSuffix(dns.Err, e.Error()) // a DNSError does not wrap it
	}
	switch {
	case is(syscall.EMFILE):
		var files syscall.Rlimit
		_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) // it does not fail
		return fmt.Sprintf("adbuffer has all %d files open that it may; raise ulimit -n (systemd: LimitNOFILE), or lower server.max_connections and pool.max_conns", files.Cur)
	case is(syscall.ENFILE):
		return "the machine has all files open that it may; raise fs.file-max"
	case is(syscall.EADDRNOTAVAIL):
		return "the machine does not have this address, or all its ports are in use; see source_addresses and net.ipv4.ip_local_port_range"
	case is(syscall.ENOBUFS), is(syscall.ENOMEM):
		return "the kernel has no memory for another connection; see the memory limits of the machine and of the cgroup, and net.ipv4.tcp_mem"
	}
	return ""
}
