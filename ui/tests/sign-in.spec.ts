import { expect, test } from './berth.ts';

test('the printed link signs in once, and leaves no trace in the address', async ({
  berth,
  page,
  browser,
}) => {
  await berth.up();
  await page.goto(berth.link);
  await expect(page.getByRole('heading', { name: 'Overview' })).toBeVisible();
  expect(page.url()).toBe(`${berth.address}/`);
  const [cookie] = await page.context().cookies();
  expect(cookie).toMatchObject({ httpOnly: true, sameSite: 'Strict' });
  await page.reload();
  await expect(page.getByRole('heading', { name: 'Overview' })).toBeVisible();

  const other = await (await browser.newContext()).newPage();
  await other.goto(berth.link);
  await expect(other.getByRole('alert')).toContainText('The link was used already, or is too old.');
  await expect(other.getByText('berth dashboard').first()).toBeVisible();
  await other.context().close();
});

test('a token signs in, a wrong one is refused beside its field, and whoever signs out is out', async ({
  berth,
  page,
}) => {
  await berth.up();
  await page.goto(`${berth.address}/workloads`);
  await page.getByLabel('Or sign in with a token').fill('wrong');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await expect(page.getByText('The token is not known here.')).toBeVisible();
  await page.getByLabel('Or sign in with a token').fill(berth.token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await expect(page.getByRole('heading', { name: 'Workloads' })).toBeVisible();
  expect(page.url()).not.toContain(berth.token);

  await page.getByRole('button', { name: 'Sign out' }).click();
  await expect(page.getByLabel('Or sign in with a token')).toBeVisible();
  await page.reload();
  await expect(page.getByLabel('Or sign in with a token')).toBeVisible();
});

test('a cookie alone opens nothing: it goes to every port of the machine', async ({
  signedIn: page,
  berth,
}) => {
  const [cookie] = await page.context().cookies();
  const stolen = await fetch(`${berth.address}/api/v1/workloads`, {
    headers: { cookie: `${cookie!.name}=${cookie!.value}` },
  });
  expect(stolen.status).toBe(401);
});
