// A provider of OpenID Connect on loopback, for tests: whoever types a name is that person, whatever the password.
//   node provider.mjs FOLDER PORT ALG [thin] [ahead=SECONDS]
// A name holds its own groups after a plus: ada+lab+ml is ada@example.org, in the groups lab and ml. Whoever is called "unsure"
// has an address that was not verified. With "thin", claims are only told to whoever asks for them. FOLDER is where the package
// oidc-provider was installed; port 0 takes a free one, and the first line that is printed is the issuer.
import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [folder, port, alg, ...options] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${folder}/package.json`));
const { Provider } = await import(pathToFileURL(require.resolve('oidc-provider')).href);

const ahead = Number(options.find((option) => option.startsWith('ahead='))?.slice(6) ?? 0);
if (ahead) {
  const now = Date.now.bind(Date);
  Date.now = () => now() + ahead * 1000;
}
const pair =
  alg === 'ES256'
    ? generateKeyPairSync('ec', { namedCurve: 'P-256' })
    : generateKeyPairSync('rsa', { modulusLength: 2048 });
const key = { ...pair.privateKey.export({ format: 'jwk' }), use: 'sig', alg, kid: randomUUID() };
const client = (id) => ({
  client_id: id,
  client_secret: 'the secret of berth: 100%',
  // A native client may come back to any port of loopback.
  application_type: 'native',
  redirect_uris: ['http://127.0.0.1/api/v1/oidc/callback'],
  id_token_signed_response_alg: alg,
});

const server = createServer();
server.listen(Number(port), '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [client('berth'), client('another')],
    jwks: { keys: [key] },
    cookies: { keys: ['only for tests'] },
    claims: { openid: ['sub'], email: ['email', 'email_verified'], groups: ['groups'], profile: [] },
    scopes: ['openid', 'email', 'profile', 'groups'],
    conformIdTokenClaims: options.includes('thin'),
    ttl: { IdToken: 3600, AccessToken: 3600, Grant: 3600, Interaction: 3600, Session: 3600 },
    async findAccount(_, id) {
      const [name, ...groups] = id.split('+');
      const claims = { sub: id, email: `${name}@example.org`, email_verified: name !== 'unsure', groups };
      return { accountId: id, claims: () => claims };
    },
  });
  server.on('request', provider.callback());
  console.log(issuer);
});
