// node manyresponses.js URL STREAMS: many large responses at once over one HTTP/2 connection; 5 % of
// the requests are cancelled. It exits with 0 if each other response was whole.
const http2 = require('http2');
const [url, streams] = [process.argv[2], Number(process.argv[3])];
const session = http2.connect(url, {rejectUnauthorized: false});
const fail = why => { console.error(why); process.exit(1); };
let opened = 0, done = 0;
session.on('error', e => fail(`the connection failed after ${done} streams: ${e}`));
session.on('goaway', code => fail(`GOAWAY ${code} after ${done} streams`));
session.on('close', () => { if (done < streams) fail(`the connection closed after ${done} streams`); });
function request() {
  if (opened === streams) return;
  const i = opened++, size = 3000 + i * 7919 % 47000;
  const r = session.request({':path': `/fillbuffer?n=${size}`});
  let got = 0, cancelled = false;
  const cancel = () => { cancelled = true; r.close(http2.constants.NGHTTP2_CANCEL); };
  if (i % 40 === 1) setTimeout(cancel, i % 15);
  r.on('response', h => { if (h[':status'] !== 200) fail(`status ${h[':status']}`); });
  r.on('data', d => { got += d.length; if (i % 40 === 21) cancel(); });
  r.on('error', e => { if (!cancelled) fail(`after ${done} streams: ${e}`); });
  r.on('close', () => {
    if (!cancelled && got !== size) fail(`${got} of ${size} bytes`);
    if (++done === streams) session.close(); else request();
  });
}
for (let n = 0; n < 100; n++) request();
