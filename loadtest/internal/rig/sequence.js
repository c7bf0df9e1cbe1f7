// Sends requests one after the other: node -e SCRIPT URL COUNT KEEPALIVE
const http = require('http');
const [url, count, keepAlive] = [process.argv[1], Number(process.argv[2]), process.argv[3] === 'true'];
// Without keep-alive as http does it by default where there is no agent.
const agent = keepAlive ? new http.Agent({ keepAlive, maxSockets: 1 }) : false;
let answered = 0, handshakes = 0;
const sockets = new WeakSet();
const started = process.hrtime.bigint();

function next(n) {
  if (n === count) {
    const seconds = Number(process.hrtime.bigint() - started) / 1e9;
    console.log(JSON.stringify({ answered, handshakes, seconds }));
    if (agent) agent.destroy();
    return;
  }
  const request = http.get(`${url}&n=${n}`, { agent }, (response) => {
    if (response.statusCode >= 200 && response.statusCode < 300) answered++;
    response.resume();
    response.on('end', () => next(n + 1));
  });
  request.on('socket', (s) => {
    if (!sockets.has(s)) { sockets.add(s); handshakes++; }
  });
  request.on('error', (e) => { console.error(e.message); process.exit(1); });
}
next(0);
