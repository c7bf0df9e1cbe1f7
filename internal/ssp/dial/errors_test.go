package dial

import (
	"errors"
	"net"
	"os"
	"syscall"

	"adbuffer/internal/wire/exchange"
)

// kind returns the label of a failed dial in adbuffer_pool_dial_errors_total.
func kind(err error) string {
	var dns *net.DNSError
	switch {
	case errors.Is(err, exchange.ErrALPN):
		return "alpn"
	case errors.As(err, &dns):
		return "dns"
	case errors.Is(err, os.ErrDeadlineExceeded), exchange.IsTimeout(err):
		return "timeout"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	case exchange.AsError(err).Outcome == exchange.TLSFailed:
		return "tls"
	}
	return "other"
}
