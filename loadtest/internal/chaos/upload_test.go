package chaos

import (
	"io"
	"strings"
	"testing"
	"time"

	"adbuffer/internal/test/testsupport"
)

// A request whose body was never read, such as a GET, is not excused for an upload.
func TestSendTimeIsZeroWithoutARead(t *testing.T) {
	u := &upload{Reader: strings.NewReader("abc"), piece: 2, pause: 20 * time.Millisecond}
	testsupport.Equal(t, u.sendTime(), 0, "%v before the first Read")
	_, err := io.ReadAll(u)
	testsupport.NoError(t, err)
	testsupport.True(t, u.sendTime() >= 60*time.Millisecond, "%v for three reads with pauses of 20 ms", u.sendTime())
}
