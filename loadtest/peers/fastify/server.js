// node server.js PORT [UPSTREAM]: forwards to UPSTREAM, or answers a fixed JSON.
const fastify = require('fastify')({ logger: false, keepAliveTimeout: 300000 });
const [port, upstream] = [Number(process.argv[2]), process.argv[3]];

if (upstream) {
  fastify.register(require('@fastify/http-proxy'), {
    upstream,
    undici: { connections: 1024, pipelining: 1, keepAliveTimeout: 300000 },
  });
} else {
  fastify.get('/fillbuffer', async () => ({ ad: 'fixed' }));
}
fastify.listen({ port, host: '127.0.0.1' }).catch((err) => {
  console.error(err.message);
  process.exit(1);
});
