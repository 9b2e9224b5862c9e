import { expect, TEAMS, test } from './berth.ts';

test('a lost connection shows a banner, keeps what was known, and resumes', async ({
  berth,
  signedIn: page,
}) => {
  await berth.run('submit', 'steady', '-p', 'team-a', '-g', '1', '-i', 'bash', '--', 'sleep', 'infinity');
  const running = page.getByRole('region', { name: 'Running workloads' });
  await expect(running.getByRole('link', { name: 'steady' })).toBeVisible();
  await berth.down('--keep-workloads');
  await expect(page.getByRole('alert')).toContainText('The server does not answer.');
  await expect(running.getByRole('link', { name: 'steady' })).toBeVisible();
  await berth.up(...TEAMS);
  await expect(page.getByRole('alert')).toBeHidden();
  await berth.run('submit', 'after', '-p', 'team-b', '-g', '1', '-i', 'bash', '--', 'sleep', 'infinity');
  await expect(running.getByRole('link', { name: 'after' })).toBeVisible();
});

test('markup is text, wherever it comes from', async ({ berth, signedIn: page }) => {
  const markup = '<img src=x onerror=alert(1)><script>alert(2)</script>';
  page.on('dialog', () => {
    throw new Error('a script ran');
  });
  await berth.run(
    'submit',
    'loud',
    '-p',
    'team-a',
    '-g',
    '1',
    '-i',
    'bash',
    '--',
    'bash',
    '-c',
    `echo '${markup}'; sleep infinity`,
  );
  await page.getByRole('link', { name: 'loud', exact: true }).click();
  const drawer = page.getByRole('complementary', { name: 'Workload loud' });
  await expect(drawer.getByText(markup).first()).toBeVisible();
  await drawer.getByRole('tab', { name: 'Logs' }).click();
  await expect(drawer.getByRole('log')).toContainText(markup);
});

test('what the server refuses is said beside the field', async ({ signedIn: page }) => {
  await page.getByRole('link', { name: 'Workloads', exact: true }).click();
  await page.getByRole('button', { name: 'Submit', exact: true }).click();
  const form = page.getByRole('dialog');
  await form.getByLabel('Name', { exact: true }).fill('Not A Name');
  await form.getByRole('button', { name: 'Submit', exact: true }).click();
  await expect(form.getByText('Use lower-case letters, digits and dashes')).toBeVisible();
  await form.getByLabel('Name', { exact: true }).fill('fine');
  await form.getByLabel('Image', { exact: true }).fill('no/such-image');
  await form.getByRole('button', { name: 'Submit', exact: true }).click();
  await expect(form.getByLabel('Image', { exact: true })).toHaveAttribute('aria-invalid', 'true');
  await form.getByLabel('Image', { exact: true }).fill('berth/quickstart');
  await form.getByLabel('GPUs per worker').fill('8');
  await form.getByRole('button', { name: 'Dry run' }).click();
  await expect(form.getByRole('status')).toContainText('It would start now on');
});

test('a page that an upgrade left behind reloads itself', async ({ berth, signedIn: page }) => {
  await page.evaluate(() => {
    document.body.dataset.old = 'yes';
  });
  await page.route('**/api/v1/projects', async route => {
    const response = await route.fetch();
    await route.fulfill({ response, headers: { ...response.headers(), 'berth-dashboard': 'another-build' } });
  });
  await berth.run('project', 'create', 'more', '--quota', '0');
  await expect(page.locator('body')).not.toHaveAttribute('data-old');
  await expect(page.getByRole('heading', { name: 'Overview' })).toBeVisible();
  // A question that is under way when the test ends is nobody's trouble.
  await page.unrouteAll({ behavior: 'ignoreErrors' });
});
