package dial

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"adbuffer/internal/wire/exchange"
)

// localError returns the error of a dial that failed with cause because this machine, or this process, lacks a
// resource. It returns nil if cause is not about this machine.
func localError(what string, cause error) error {
	short := exhausted(cause)
	if short == "" {
		return nil
	}
	return &exchange.Error{Outcome: exchange.LocalError, Progress: exchange.NotSent, Detail: what + ": " + short, Err: cause}
}

// exhausted names the exhausted resource of this machine and the setting that raises it. It returns "" if err is not
// about this machine.
func exhausted(err error) string {
	dns, _ := errors.AsType[*net.DNSError](err)
	is := func(e syscall.Errno) bool {
		return errors.Is(err, e) || dns != nil && strings.HasSuffix(dns.Err, e.Error()) // a DNSError has the text of the errno, but does not wrap it
	}
	switch {
	case is(syscall.EMFILE):
		var files syscall.Rlimit
		_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) // it does not fail
		return fmt.Sprintf("adbuffer has reached its limit of %d open files; raise ulimit -n (systemd: LimitNOFILE), or lower server.max_connections and pool.max_conns", files.Cur)
	case is(syscall.ENFILE):
		return "the machine has reached its limit of open files; raise fs.file-max"
	case is(syscall.EADDRNOTAVAIL):
		return "the machine does not have this address, or all its ports are in use; see source_addresses and net.ipv4.ip_local_port_range"
	case is(syscall.ENOBUFS), is(syscall.ENOMEM):
		return "the kernel has no memory for another connection; see the memory limits of the machine and of the cgroup, and net.ipv4.tcp_mem"
	}
	return ""
}
