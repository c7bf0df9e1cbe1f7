package dial

import (
	"errors"
	"net"
	"os"
	"syscall"

	"adbuffer/internal/wire/upstream"
)

// kind returns the label of a failed dial in adbuffer_pool_dial_errors_total.
func kind(err error) string {
	var dns *net.DNSError
	switch {
	case errors.Is(err, upstream.ErrALPN):
		return "alpn"
	case errors.As(err, &dns):
		return "dns"
	case errors.Is(err, os.ErrDeadlineExceeded), upstream.IsTimeout(err):
		return "timeout"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	case upstream.AsError(err).Outcome == upstream.TLSFailed:
		return "tls"
	}
	return "other"
}
