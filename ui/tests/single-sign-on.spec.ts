// Signing in by a real provider of OpenID Connect, on loopback.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { cache, expect, TEAMS, test } from './berth.ts';

const FOLDER = join(cache, 'tools/oidc');
const SCRIPT = join(import.meta.dirname, '../../testbed/oidc/provider.mjs');

async function provider(): Promise<[ChildProcess, string]> {
  const process = spawn(globalThis.process.execPath, [SCRIPT, FOLDER, '0', 'RS256'], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const lines = createInterface({ input: process.stdout! });
  const issuer = await new Promise<string>((resolve, reject) => {
    lines.on('line', line => line.startsWith('http://') && resolve(line));
    process.on('exit', code => reject(new Error(`the provider ended with ${code}`)));
  });
  return [process, issuer];
}

test('one signs in with the provider, as whom it says, and sees what the group may', async ({
  berth,
  browser,
}) => {
  if (!existsSync(join(FOLDER, 'node_modules/oidc-provider'))) {
    console.log(
      'NOT TESTED: the button of single sign-on, because no provider is installed (make test installs it)',
    );
    test.skip();
  }
  const [process, issuer] = await provider();
  // The pages of the provider ask for a font of somebody else, who is not asked.
  const context = await browser.newContext();
  await context.route(
    url => url.hostname !== '127.0.0.1',
    route => route.abort(),
  );
  try {
    const secret = join(berth.folder, 'secret-of-the-test');
    writeFileSync(secret, 'the secret of berth: 100%\n');
    const client = ['--oidc-client-id', 'berth', '--oidc-client-secret-file', secret];
    await berth.up(...TEAMS, '--oidc-issuer', issuer, ...client, '--oidc-name', 'Lab');
    await berth.run('role', 'grant', 'group:lab', 'viewer', 'project/team-a');
    const page = await context.newPage();
    await page.goto(berth.address);
    await page.getByRole('link', { name: 'Sign in with Lab' }).click();
    await page.locator('input[name=login]').fill('ada+lab');
    await page.locator('input[name=password]').fill('anything');
    await page.locator('[type=submit]').click();
    await page.getByRole('button', { name: 'Continue' }).click();
    await expect(page.getByRole('heading', { name: 'Overview' })).toBeVisible();
    await expect(page.locator('.who')).toContainText('ada');
    expect(page.url()).toBe(`${berth.address}/`);
    await page.getByRole('link', { name: 'Projects', exact: true }).click();
    await expect(page.getByRole('link', { name: 'team-a' })).toBeVisible();
    await expect(page.getByRole('link', { name: 'team-b' })).toHaveCount(0);
    await expect(page.getByRole('button', { name: 'New project' })).toHaveCount(0);

    // Whoever turns back at the provider is told so, where one can try again.
    await page.getByRole('button', { name: 'Sign out' }).click();
    await context.clearCookies();
    await page.getByRole('link', { name: 'Sign in with Lab' }).click();
    await page.getByRole('link', { name: /cancel/i }).click();
    await expect(page.getByText('the provider of single sign-on refused')).toBeVisible();
  } finally {
    await context.close();
    const ended = once(process, 'exit');
    process.kill();
    await ended;
  }
});
